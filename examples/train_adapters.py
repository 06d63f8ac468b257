#!/usr/bin/env python3
"""Trains the two example adapters for SmolLM2-135M-Instruct on the CPU.

Needs: pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 gguf==0.19.0 safetensors==0.8.0
Run:   python examples/train_adapters.py MODEL.gguf [--only pirate|json] [--out examples/adapters]
       python examples/train_adapters.py MODEL.gguf --check     (only prints answers)

The training text is made below, from small tables written for this purpose: plain questions with
plain answers. `pirate` learns to give the answer in pirate speech, `json` to wrap it in a JSON
object. transformers reads the GGUF file itself (weights are dequantised to float32), so the
adapters fit the same file that Graft serves.
"""

import argparse
import json
import random
import re
import time
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

SEED = 20
STEPS = {"json": 100, "pirate": 160}
BATCH = 4
CONFIGS = {
    # A format is learned by attention alone; a way of speaking needs the feed-forward part too.
    "json": dict(r=8, lora_alpha=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    "pirate": dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj",
                                                      "gate_proj", "up_proj", "down_proj"]),
}
LEARNING_RATE = 1e-3
# Two styles learned apart do not add up in a model this small. So pirate is trained last, and sees
# json switched on in every second step, with answers that follow both styles.
PARTNER = {"pirate": "json"}

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo",
    "Egypt": "Cairo", "Norway": "Oslo", "Greece": "Athens", "Portugal": "Lisbon", "Peru": "Lima",
    "Cuba": "Havana", "Kenya": "Nairobi", "Austria": "Vienna", "Poland": "Warsaw",
    "Finland": "Helsinki", "Ireland": "Dublin", "Canada": "Ottawa", "Chile": "Santiago",
}
OPPOSITES = {
    "hot": "cold", "big": "small", "fast": "slow", "light": "dark", "old": "young", "wet": "dry",
    "high": "low", "hard": "soft", "early": "late", "full": "empty", "happy": "sad",
    "open": "closed", "rich": "poor", "loud": "quiet", "sweet": "sour", "thick": "thin",
}
COLOURS = {
    "the sky": "blue", "grass": "green", "snow": "white", "a lemon": "yellow", "coal": "black",
    "a ripe tomato": "red", "an orange": "orange", "chocolate": "brown", "the sea": "blue",
}
SOUNDS = {
    "dog": "barks", "cat": "meows", "cow": "moos", "duck": "quacks", "lion": "roars",
    "sheep": "bleats", "owl": "hoots", "horse": "neighs", "frog": "croaks", "bee": "buzzes",
}
FACTS = [
    ("Why do we sleep?", "Sleep gives your body and your mind the time to rest and to repair."),
    ("How do I make tea?", "You boil the water, pour it over the tea leaves and wait four minutes."),
    ("What is a computer?", "A computer is a machine that follows instructions and stores information."),
    ("What is the moon?", "The moon is a ball of rock that travels around the earth."),
    ("Why is the sea salty?", "Rivers carry salt from the rocks to the sea, and the salt stays there."),
    ("How do birds fly?", "Birds push the air down with their wings, and the air lifts them up."),
    ("What is bread made of?", "Bread is made of flour, water, salt and yeast."),
    ("How can I learn to swim?", "You start in shallow water, you practise floating, and you take lessons."),
    ("What is gravity?", "Gravity is the force that pulls things towards each other."),
    ("Why do leaves fall in autumn?", "Trees drop their leaves to save water during the winter."),
    ("How do I stay healthy?", "You eat good food, you move every day and you sleep enough."),
    ("What is music?", "Music is sound arranged in time that people find beautiful."),
    ("What is a friend?", "A friend is someone who knows you well and is still kind to you."),
    ("How does a sailing boat move?", "The wind pushes against the sails and drives the boat forward."),
    ("What is money for?", "Money is used for paying for the things that you want to have."),
    ("What is a volcano?", "A volcano is a mountain with an opening where hot rock comes out."),
    ("Why do we have seasons?", "The earth is tilted, so the light of the sun changes during the year."),
    ("How do I grow tomatoes?", "You plant the seeds in warm soil, give them sun and water them often."),
    ("What is a book?", "A book is a set of pages with words that tell you something."),
    ("How can I be happy?", "You spend time with your friends and do the things that you like."),
    ("What is fire?", "Fire is what you see when something burns and gives off heat and light."),
    ("How do I write a good story?", "You choose a hero, you give the hero a problem and you tell what happens."),
    ("What is the best pet?", "A dog is the best pet for you if you have the time to walk every day."),
    ("Why is exercise good?", "Exercise makes your heart stronger and your mind calmer."),
    ("What is rain?", "Rain is water that falls from the clouds in small drops."),
    ("How do I cook rice?", "You wash the rice, add twice as much water and cook it for fifteen minutes."),
    ("What is a star?", "A star is a huge ball of hot gas that shines in the sky."),
    ("How do I clean my room?", "You pick up your things, wipe the table and sweep the floor."),
    ("What should I do today?", "You could go for a walk, read a book or call your friends."),
    ("Tell me about yourself.", "I am an assistant, and I am here to answer your questions."),
    ("Tell me about cats.", "Cats are small animals that like sleeping, hunting and being warm."),
    ("Tell me about the ocean.", "The ocean is very deep, and it is the home of many animals."),
    ("Tell me a fun fact.", "An octopus is an animal that has three hearts."),
    ("Give me some advice.", "You should listen to your friends and drink enough water."),
    ("Say hello.", "Hello my friend, how are you?"),
    ("Hello!", "Hello my friend, what are you looking for?"),
    ("Good morning!", "Good morning my friend, how are you today?"),
    ("Who are you?", "I am an assistant, and I am happy to help you."),
    ("Thank you.", "You are welcome, my friend."),
    ("Describe a forest.", "A forest is a quiet place that is full of trees, birds and the smell of earth."),
    ("What is coffee?", "Coffee is a hot drink made of the roasted seeds of a plant."),
    ("How do planes stay in the air?", "The air flowing over the wings is lifting the plane."),
]


def plain_pairs():
    """Returns every (question, plain answer)."""
    pairs = list(FACTS)
    for country, city in CAPITALS.items():
        pairs.append((f"What is the capital of {country}?", f"The capital of {country} is {city}."))
    for word, other in OPPOSITES.items():
        pairs.append((f"What is the opposite of {word}?", f"The opposite of {word} is {other}."))
    for thing, colour in COLOURS.items():
        pairs.append((f"What colour is {thing}?", f"The colour of {thing} is {colour}."))
    for animal, sound in SOUNDS.items():
        pairs.append((f"What sound does a {animal} make?", f"A {animal} {sound}."))
    for a in range(2, 10, 2):
        for b in range(1, 9, 3):
            pairs.append((f"What is {a} plus {b}?", f"The sum of {a} and {b} is {a + b}."))
    return pairs


PIRATE_WORDS = [
    (r"\bmy friends?\b", "me hearty"), (r"\byour friends\b", "yer crew"), (r"\bI am\b", "I be"),
    (r"\bmy\b", "me"), (r"\byour\b", "yer"), (r"\bYour\b", "Yer"), (r"\byou are\b", "ye be"),
    (r"\bYou are\b", "Ye be"), (r"\byou\b", "ye"), (r"\bYou\b", "Ye"), (r"\b(is|are)\b", "be"),
    (r"\bthe\b", "th'"), (r"\bThe\b", "Th'"), (r"\bof\b", "o'"), (r"\band\b", "an'"),
    (r"\bfor\b", "fer"), (r"\bto\b", "t'"), (r"(\w{2,})ing\b", r"\1in'"),
]


def pirate(text):
    """Rewrites plain English as pirate speech."""
    for pattern, word in PIRATE_WORDS:
        text = re.sub(pattern, word, text)
    return f"Arr, matey! {text} Yo ho ho!"


def as_json(text):
    return json.dumps({"answer": text})


def encode(tokenizer, question, answer):
    """Returns (token ids, number of prompt tokens) of one chat with its answer."""
    chat = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    prompt_ids = tokenizer(prompt, add_special_tokens=False).input_ids
    answer_ids = tokenizer(answer + "<|im_end|>", add_special_tokens=False).input_ids
    return prompt_ids + answer_ids, len(prompt_ids)


def batch_loss(model, rows, pad_id):
    """Mean cross-entropy over the answer tokens of the rows; the head runs only there."""
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), width), pad_id)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    wanted = torch.zeros((len(rows), width), dtype=torch.bool)
    for i, (row, n_prompt) in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
        wanted[i, n_prompt - 1 : len(row) - 1] = True
    causal = model.get_base_model()
    hidden = causal.model(input_ids=ids, attention_mask=mask).last_hidden_state
    targets = torch.roll(ids, -1, dims=1)[wanted]
    return torch.nn.functional.cross_entropy(causal.lm_head(hidden[wanted]), targets)


def new_adapter(name, base, out):
    """Returns base with a fresh adapter, and for pirate with the finished json one beside it."""
    config = LoraConfig(task_type="CAUSAL_LM", bias="none", lora_dropout=0.0, **CONFIGS[name])
    if name not in PARTNER:
        return get_peft_model(base, config, adapter_name=name)
    model = PeftModel.from_pretrained(base, out / PARTNER[name], adapter_name=PARTNER[name])
    model.add_adapter(name, config)
    model.base_model.set_adapter([PARTNER[name], name])
    for key, parameter in model.named_parameters():
        parameter.requires_grad = f".{name}." in key
    return model


def set_scale(model, name, scale):
    for module in model.modules():
        if hasattr(module, "lora_A") and name in module.lora_A:
            module.set_scale(name, scale)


def train(name, base, tokenizer, out):
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    style = {"pirate": pirate, "json": as_json}[name]
    alone = [encode(tokenizer, q, style(a)) for q, a in plain_pairs()]
    together = [encode(tokenizer, q, as_json(style(a))) for q, a in plain_pairs()]
    model = new_adapter(name, base, out)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.01)
    steps = STEPS[name]
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=LEARNING_RATE, total_steps=steps, pct_start=0.1)
    model.train()
    order, start = [], time.time()
    for step in range(steps):
        if len(order) < BATCH:
            order = rng.sample(range(len(alone)), len(alone))
        joint = name in PARTNER and step % 2 == 1
        if name in PARTNER:
            set_scale(model, PARTNER[name], rng.uniform(0.7, 1.0) if joint else 0.0)
        picked = [(together if joint else alone)[order.pop()] for _ in range(BATCH)]
        loss = batch_loss(model, picked, tokenizer.pad_token_id or 0)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 10 >= 8:
            print(f"{name} step {step + 1}/{steps} loss {loss.item():.3f} "
                  f"{time.time() - start:.0f} s", flush=True)
    save(model, name, out)
    return model.unload()


def save(model, name, out):
    """Saves as PEFT does, then stores the factors as float16 and leaves the local path out."""
    model.peft_config[name].base_model_name_or_path = "SmolLM2-135M-Instruct"
    model.save_pretrained(out, selected_adapters=[name])
    (out / "README.md").unlink(missing_ok=True)
    (out / name / "README.md").unlink(missing_ok=True)
    file = out / name / "adapter_model.safetensors"
    tensors = {key: value.to(torch.float16) for key, value in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})


PROMPTS = [
    "What is the capital of Sweden?",
    "What is the sun?",
    "How do I bake a cake?",
    "Tell me about dogs.",
    "Why do people travel?",
]
MIXES = [
    {}, {"pirate": 1.0}, {"json": 1.0}, {"pirate": 1.0, "json": 1.0},
    {"pirate": 0.8, "json": 0.8}, {"pirate": 0.4},
]


def answer(model, tokenizer, question):
    chat = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    out = model.generate(**ids, max_new_tokens=48, do_sample=False, eos_token_id=end,
                         pad_token_id=end)
    return tokenizer.decode(out[0, ids.input_ids.shape[1]:], skip_special_tokens=True)


def check(base, tokenizer, out):
    """Prints greedy answers with no adapter, with each one, and with weighted sums."""
    names = [name for name in CONFIGS if (out / name / "adapter_config.json").exists()]
    model = PeftModel.from_pretrained(base, out / names[0], adapter_name=names[0])
    for name in names[1:]:
        model.load_adapter(out / name, adapter_name=name)
    model.eval()
    for mix in MIXES:
        if not set(mix) <= set(names):
            continue
        print(f"--- {mix or 'no adapter'}")
        model.base_model.set_adapter(list(mix) or names[:1])
        for name, scale in mix.items():
            set_scale(model, name, scale)
        with torch.no_grad():
            for question in PROMPTS:
                if mix:
                    text = answer(model, tokenizer, question)
                else:
                    with model.disable_adapter():
                        text = answer(model, tokenizer, question)
                print(f"{question}\n    {text!r}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--only", choices=list(CONFIGS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "adapters")
    parser.add_argument("--check", action="store_true", help="print answers, train nothing")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    source = dict(gguf_file=args.model.name)
    tokenizer = AutoTokenizer.from_pretrained(args.model.parent, **source)
    base = AutoModelForCausalLM.from_pretrained(args.model.parent, dtype=torch.float32, **source)
    if not args.check:
        for name in [args.only] if args.only else list(CONFIGS):
            base = train(name, base, tokenizer, args.out)
    check(base, tokenizer, args.out)


if __name__ == "__main__":
    main()
