#!/usr/bin/env python3
"""The official openai client against the real binary, on a real model with two adapters.

    test_openai.py --graft BINARY --model MODEL.gguf --adapters FOLDER [--junit FILE]

scripts/test installs the client (requirements.txt) and runs this. FOLDER holds at least two PEFT
adapters for the model. The server is started once for all tests, on a free port.
"""

import asyncio
import concurrent.futures
import json
import pathlib
import sys
import typing
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import graft_process  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402

QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]


class Server(graft_process.GraftProcess):
    """The graft process under test and what the tests must know of it."""

    def __init__(self, binary, model, adapters):
        names = sorted(folder.name for folder in pathlib.Path(adapters).iterdir() if folder.is_dir())
        if len(names) < 2:
            sys.exit(f"{adapters} holds {len(names)} adapters; two are needed")
        self.first, self.second = names[:2]
        self.stem = pathlib.Path(model).stem
        # One thread: two that wait for each other are many times slower where other work is running.
        super().__init__(binary, model, "--ctx", 8192, "--max-seqs", 16, "--threads", 1,
                         *graft_process.module_options(adapters, self.first, self.second))


SERVER = None  # the Server, set by main()


def make_client(**options):
    return openai.OpenAI(base_url=SERVER.url + "/v1", api_key="any", max_retries=0, timeout=120, **options)


def chat(client, model="base", max_tokens=24, messages=QUESTION, temperature=0, **options):
    return client.chat.completions.create(
        model=model, messages=messages, max_tokens=max_tokens, temperature=temperature, **options)


def text_of(answer):
    return answer.choices[0].message.content


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.client = make_client()

    def tearDown(self):
        self.client.close()


class Models(ClientTest):
    def test_lists_base_first_then_modules_with_parent_and_root(self):
        models = self.client.models.list().data
        self.assertEqual(models[0].model_dump().get("parent"), None)
        by_id = {model.id: model for model in models}
        for name in (SERVER.first, SERVER.second):
            self.assertIn(name, by_id)
            self.assertEqual(by_id[name].model_dump()["parent"], models[0].id)
            self.assertTrue(by_id[name].model_dump()["root"])
            self.assertEqual(by_id[name].object, "model")

    def test_base_answers_to_its_names(self):
        answers = {text_of(chat(self.client, model=name)) for name in ("base", SERVER.stem)}
        self.assertEqual(len(answers), 1)


class Chat(ClientTest):
    def test_plain_answer_is_complete(self):
        answer = chat(self.client)
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn("Tokyo", text_of(answer))
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        usage = answer.usage
        self.assertGreater(usage.prompt_tokens, 5)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)

    def test_token_limit_is_kept_and_reported(self):
        answer = chat(self.client, max_tokens=3)
        self.assertEqual(answer.usage.completion_tokens, 3)
        self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_max_completion_tokens_is_the_same_limit(self):
        answer = self.client.chat.completions.create(
            model="base", messages=QUESTION, max_completion_tokens=3, temperature=0)
        self.assertEqual(answer.usage.completion_tokens, 3)

    def test_content_parts_equal_a_string(self):
        parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
        self.assertEqual(text_of(chat(self.client, messages=parts)), text_of(chat(self.client)))

    def test_stream_equals_plain(self):
        chunks = list(chat(self.client, stream=True, stream_options={"include_usage": True}))
        plain = chat(self.client)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}), 1)
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage, plain.usage)
        bodies = [chunk.choices[0] for chunk in chunks[:-1]]
        self.assertEqual("".join(body.delta.content or "" for body in bodies), text_of(plain))
        self.assertEqual([body.finish_reason for body in bodies if body.finish_reason],
                         [plain.choices[0].finish_reason])

    def test_stop_string_ends_the_answer_before_it(self):
        whole = text_of(chat(self.client))
        self.assertIn("Tokyo", whole)
        answer = chat(self.client, stop=["Tokyo"])
        self.assertEqual(text_of(answer), whole[:whole.index("Tokyo")])
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_same_seed_same_answer(self):
        def sampled(seed):
            return text_of(chat(self.client, temperature=1.5, seed=seed, max_tokens=32))
        self.assertEqual(sampled(7), sampled(7))
        self.assertGreater(len({sampled(seed) for seed in range(4)}), 1)

    def test_logprobs_describe_the_text(self):
        answer = chat(self.client, logprobs=True, top_logprobs=3, max_tokens=8)
        entries = answer.choices[0].logprobs.content
        # The token that ends a turn is counted, but has no text and no entry.
        n_end = 1 if answer.choices[0].finish_reason == "stop" else 0
        self.assertEqual(len(entries), answer.usage.completion_tokens - n_end)
        for entry in entries:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.top_logprobs[0].token, entry.token)  # greedy
            self.assertAlmostEqual(entry.top_logprobs[0].logprob, entry.logprob, places=4)
        said = b"".join(bytes(entry.bytes) for entry in entries).decode()
        self.assertTrue(said.startswith(text_of(answer)))

    def test_closing_a_stream_leaves_the_server_well(self):
        for _ in range(5):
            stream = chat(self.client, stream=True, max_tokens=2000, extra_body={"ignore_eos": True})
            next(iter(stream))
            stream.close()
        self.assertIn("Tokyo", text_of(chat(self.client)))


class Responses(ClientTest):
    def respond(self, **options):
        options = {"input": QUESTION[0]["content"], "max_output_tokens": 24} | options
        return self.client.responses.create(model=options.pop("model", "base"), temperature=0, **options)

    def test_plain_answer_equals_chat(self):
        answer = self.respond()
        self.assertEqual(answer.output_text, text_of(chat(self.client)))
        self.assertIn(answer.status, ("completed", "incomplete"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)

    def test_items_and_instructions_equal_messages(self):
        said = [{"role": "system", "content": "Answer in one word."}] + QUESTION
        answer = self.respond(instructions=said[0]["content"], input=QUESTION)
        self.assertEqual(answer.output_text, text_of(chat(self.client, messages=said)))

    def test_stream_equals_plain(self):
        events = list(self.respond(stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual(events[0].type, "response.created")
        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assertEqual("".join(pieces), self.respond().output_text)
        self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))
        self.assertEqual(events[-1].response.output_text, "".join(pieces))

    def test_the_limit_is_reported(self):
        answer = self.respond(max_output_tokens=3)
        self.assertEqual(answer.status, "incomplete")
        self.assertEqual(answer.incomplete_details.reason, "max_output_tokens")

    def test_a_module_shapes_the_answer(self):
        self.assertEqual(self.respond(model=SERVER.first).output_text,
                         text_of(chat(self.client, model=SERVER.first)))

    def test_nothing_is_stored(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.respond(previous_response_id=self.respond().id)
        self.assertEqual(caught.exception.body["param"], "previous_response_id")


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "additionalProperties": False,
                   "properties": {"city": {"type": "string", "maxLength": 20},
                                  "unit": {"type": "string", "enum": ["C", "F"]}},
                   "required": ["city", "unit"]}}}
CLOCK = {"type": "function", "function": {
    "name": "get_time", "description": "The time of day.",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}


class Tools(ClientTest):
    """The model's own template knows no tools; the server gives it a prompt and a grammar."""

    def ask(self, **options):
        return chat(self.client, messages=[{"role": "user", "content": "How warm is it in Paris?"}],
                    max_tokens=200, tools=[WEATHER, CLOCK], **options)

    def check_weather(self, call):
        self.assertEqual(call.type, "function")
        self.assertTrue(call.id)
        self.assertEqual(call.function.name, "get_weather")
        arguments = json.loads(call.function.arguments)
        self.assertEqual(set(arguments), {"city", "unit"})
        self.assertIn(arguments["unit"], ("C", "F"))

    def test_named_tool_is_called_once(self):
        choice = self.ask(tool_choice={"type": "function", "function": {"name": "get_weather"}}
                          ).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertEqual(len(choice.message.tool_calls), 1)
        self.check_weather(choice.message.tool_calls[0])

    def test_required_calls_are_of_declared_tools(self):
        choice = self.ask(tool_choice="required", parallel_tool_calls=False).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertEqual(choice.message.content, None)
        for call in choice.message.tool_calls:
            self.assertIn(call.function.name, ("get_weather", "get_time"))
            self.assertIsInstance(json.loads(call.function.arguments), dict)

    def test_stream_equals_plain(self):
        choice = {"type": "function", "function": {"name": "get_weather"}}
        plain = self.ask(tool_choice=choice).choices[0]
        deltas = [chunk.choices[0] for chunk in self.ask(tool_choice=choice, stream=True)]
        calls = [call for delta in deltas for call in delta.delta.tool_calls or []]
        self.assertEqual({call.index for call in calls}, {0})
        self.assertTrue(calls[0].id)
        self.assertEqual([call.function.name for call in calls if call.function.name],
                         ["get_weather"])
        self.assertGreater(len(calls), 3)
        self.assertEqual("".join(call.function.arguments for call in calls),
                         plain.message.tool_calls[0].function.arguments)
        self.assertEqual(deltas[-1].finish_reason, "tool_calls")

    def test_results_are_taken_into_the_history(self):
        call = self.ask(tool_choice={"type": "function", "function": {"name": "get_weather"}}
                        ).choices[0].message

        def prompt_tokens(result):
            return chat(self.client, tools=[WEATHER], max_tokens=1, messages=[
                {"role": "user", "content": "How warm is it in Paris?"}, call.model_dump(),
                {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": result}]
            ).usage.prompt_tokens
        self.assertEqual(prompt_tokens("warm " * 20) - prompt_tokens("warm " * 10), 10)

    def test_bad_choices_are_named(self):
        for options, param in (
                ({"tool_choice": {"type": "function", "function": {"name": "no"}}},
                 "tool_choice.function.name"),
                ({"tool_choice": "required", "response_format": {"type": "json_object"}},
                 "response_format")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask(**options)
            self.assertEqual(caught.exception.param, param)


class Completions(ClientTest):
    def complete(self, **options):
        options = {"prompt": "One, two, three,", "max_tokens": 12} | options
        return self.client.completions.create(model="base", temperature=0, **options)

    def test_plain_and_stream_agree(self):
        plain = self.complete()
        self.assertEqual(plain.object, "text_completion")
        self.assertIn("four", plain.choices[0].text)
        pieces = [chunk.choices[0].text for chunk in self.complete(stream=True) if chunk.choices]
        self.assertEqual("".join(pieces), plain.choices[0].text)

    def test_logprobs_have_one_entry_per_token(self):
        answer = self.complete(logprobs=2, max_tokens=5)
        logprobs = answer.choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), 5)
        self.assertEqual(len(logprobs.token_logprobs), 5)
        self.assertEqual(len(logprobs.text_offset), 5)
        for entry in logprobs.top_logprobs:
            self.assertGreaterEqual(len(entry), 1)

    def test_echoed_logprobs_are_those_of_generating(self):
        generated = self.complete(logprobs=1, max_tokens=8, extra_body={"return_token_ids": True})
        choice = generated.choices[0].model_dump()
        scored = self.complete(prompt=choice["prompt_token_ids"] + choice["token_ids"], echo=True, logprobs=1,
                               max_tokens=0)
        self.assertEqual(scored.usage.completion_tokens, 0)
        self.assertTrue(scored.choices[0].text.endswith(generated.choices[0].text))
        logprobs = scored.choices[0].logprobs
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertEqual(logprobs.token_logprobs[-8:], generated.choices[0].logprobs.token_logprobs)
        self.assertEqual(logprobs.tokens[-8:], generated.choices[0].logprobs.tokens)

    def test_prompt_logprobs_of_a_chat(self):
        answer = chat(self.client, max_tokens=1, extra_body={"prompt_logprobs": 1}).model_dump()
        entries = answer["prompt_logprobs"]
        self.assertEqual(len(entries), answer["usage"]["prompt_tokens"])
        self.assertIsNone(entries[0])
        for entry in entries[1:]:
            ranks = sorted(token["rank"] for token in entry.values())
            self.assertEqual(ranks[0], 1)

    def test_logit_bias_decides(self):
        first_texts = {self.complete(max_tokens=1, logit_bias={str(token): 100}).choices[0].text
                       for token in (1000, 2000, 3000)}
        self.assertEqual(len(first_texts), 3)


class Embeddings(ClientTest):
    TEXTS = ["The cat sat on the mat.", "A kitten is sitting on a rug.", "Interest rates rose by two percent."]

    def embed(self, texts, **options):
        answer = self.client.embeddings.create(model=options.pop("model", "base"), input=texts, **options)
        return [item.embedding for item in answer.data]

    def test_the_clients_base64_is_what_floats_are(self):
        packed = self.embed(self.TEXTS)  # the client asks for base64 and unpacks it
        plain = self.embed(self.TEXTS, encoding_format="float")
        self.assertEqual(len(packed), 3)
        for one, other in zip(packed, plain):
            self.assertEqual(len(one), len(other))
            for a, b in zip(one, other):
                self.assertAlmostEqual(a, b, places=6)
            self.assertAlmostEqual(sum(value * value for value in one), 1, places=4)

    def test_likeness_follows_meaning(self):
        cat, kitten, rates = self.embed(self.TEXTS)
        likeness = lambda a, b: sum(x * y for x, y in zip(a, b))
        self.assertGreater(likeness(cat, kitten), likeness(cat, rates))

    def test_company_changes_nothing_and_a_module_does(self):
        alone = self.embed([self.TEXTS[0]])[0]
        self.assertEqual(self.embed(self.TEXTS * 8)[0], alone)
        self.assertNotEqual(self.embed([self.TEXTS[0]], model=SERVER.first)[0], alone)

    def test_fewer_dimensions(self):
        short = self.embed(self.TEXTS[:1], dimensions=16)[0]
        self.assertEqual(len(short), 16)
        self.assertAlmostEqual(sum(value * value for value in short), 1, places=4)


class Modules(ClientTest):
    def raw(self, **options):
        """(answer, x-graft-modules header, modules of the graft object as name -> scale)."""
        response = self.client.chat.completions.with_raw_response.create(
            model=options.pop("model", "base"), messages=QUESTION, max_tokens=24, temperature=0,
            **options)
        answer = response.parse()
        modules = answer.model_extra["graft"]["modules"]
        for module in modules:
            self.assertRegex(module["version"], "^[0-9a-f]{64}$")
        scales = {module["name"]: module["scale"] for module in modules}
        return answer, response.headers.get("x-graft-modules", ""), scales

    def test_module_by_model_name_shapes_the_answer_and_is_named(self):
        base = text_of(chat(self.client))
        for name in (SERVER.first, SERVER.second):
            answer, header, scales = self.raw(model=name)
            self.assertNotEqual(text_of(answer), base)
            self.assertIn(name, header)
            self.assertEqual(scales, {name: 1})

    def test_module_by_field_equals_module_by_model(self):
        by_model = text_of(chat(self.client, model=SERVER.first))
        by_field, header, _ = self.raw(extra_body={"modules": [{"name": SERVER.first}]})
        self.assertEqual(text_of(by_field), by_model)
        self.assertIn(SERVER.first, header)

    def test_module_by_position_as_in_llama_server(self):
        by_model = text_of(chat(self.client, model=SERVER.second))
        answer, header, _ = self.raw(extra_body={"lora": [{"id": 1, "scale": 1.0}]})
        self.assertEqual(text_of(answer), by_model)
        self.assertIn(SERVER.second, header)

    def test_two_modules_with_weights_are_both_named(self):
        modules = [{"name": SERVER.first, "scale": 0.6}, {"name": SERVER.second, "scale": 0.7}]
        answer, header, scales = self.raw(extra_body={"modules": modules})
        self.assertEqual(list(scales), [SERVER.first, SERVER.second])
        for module in modules:
            self.assertIn(module["name"], header)
            self.assertAlmostEqual(scales[module["name"]], module["scale"], places=5)
        self.assertNotIn(text_of(answer), (text_of(chat(self.client, model=SERVER.first)),
                                           text_of(chat(self.client, model=SERVER.second))))

    def test_scale_zero_answers_as_the_base(self):
        answer, _, _ = self.raw(extra_body={"modules": [{"name": SERVER.first, "scale": 0}]})
        self.assertEqual(text_of(answer), text_of(chat(self.client)))

    def test_base_is_untouched_after_modules(self):
        before = chat(self.client, logprobs=True, top_logprobs=5)
        chat(self.client, model=SERVER.first)
        after = chat(self.client, logprobs=True, top_logprobs=5)
        self.assertEqual(before.choices[0].logprobs, after.choices[0].logprobs)

    def test_base_answer_names_no_module(self):
        _, header, scales = self.raw()
        self.assertEqual(header, "")
        self.assertEqual(scales, {})


class Concurrency(ClientTest):
    def requests(self):
        both = [{"name": SERVER.first, "scale": 0.5}, {"name": SERVER.second, "scale": 0.5}]
        choices = [{}, {"model": SERVER.first}, {"model": SERVER.second},
                   {"extra_body": {"modules": both}}]
        questions = ["What is 2+2?", "Name a colour.", "What does a dog do?"]
        return [dict(choice, messages=[{"role": "user", "content": question}])
                for choice in choices for question in questions]

    def test_company_does_not_change_an_answer(self):
        requests = self.requests()
        alone = [text_of(chat(self.client, **request)) for request in requests]
        with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
            together = list(pool.map(lambda r: text_of(chat(self.client, **r)), requests))
        self.assertEqual(together, alone)

    def test_async_client_streams_at_once(self):
        async def stream_text(client, request):
            stream = await client.chat.completions.create(
                model=request.get("model", "base"), messages=request["messages"], max_tokens=16,
                temperature=0, stream=True, extra_body=request.get("extra_body"))
            return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

        async def run():
            async with openai.AsyncOpenAI(base_url=SERVER.url + "/v1", api_key="any") as client:
                return await asyncio.gather(*[stream_text(client, r) for r in self.requests()])

        expected = [text_of(chat(self.client, max_tokens=16, **r)) for r in self.requests()]
        self.assertEqual(asyncio.run(run()), expected)


class Person(pydantic.BaseModel):
    """What the structured answers describe; every part bounded, so that the answer ends."""
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=120)
    mood: typing.Literal["happy", "sad"]
    tags: list[typing.Literal["red", "green"]] = pydantic.Field(max_length=2)
    code: str = pydantic.Field(pattern=r"^[A-Z]{2}\d$")


class StructuredOutput(ClientTest):
    ASK = [{"role": "user", "content": "Describe a person as JSON."}]

    def ask(self, temperature=0, **options):
        return chat(self.client, messages=self.ASK, max_tokens=200, temperature=temperature, **options)

    def test_the_parse_helper_gets_objects_of_its_class(self):
        for temperature, seed in ((0, 1), (1, 2), (1, 3)):
            answer = self.client.chat.completions.parse(
                model="base", messages=self.ASK, max_tokens=200, temperature=temperature, seed=seed,
                response_format=Person)
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            self.assertIsInstance(answer.choices[0].message.parsed, Person)

    def test_a_stream_has_the_same_text(self):
        form = {"type": "json_schema", "json_schema": {
            "name": "person", "schema": Person.model_json_schema(), "strict": True}}
        plain = text_of(self.ask(response_format=form))
        chunks = self.ask(response_format=form, stream=True)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), plain)
        Person.model_validate_json(plain)

    def test_any_json_object(self):
        answer = self.ask(response_format={"type": "json_object"})
        text = text_of(answer)
        self.assertTrue(text.startswith("{"))
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(text), dict)

    def test_choice_expression_and_grammar(self):
        for seed in range(4):
            options = {"temperature": 1 if seed else 0, "seed": seed}
            text = text_of(self.ask(extra_body={"structured_outputs": {"choice": ["yes", "no"]}}, **options))
            self.assertIn(text, ("yes", "no"))
            text = text_of(self.ask(extra_body={"guided_regex": r"\d{4}-\d{2}"}, **options))
            self.assertRegex(text, r"^\d{4}-\d{2}$")
            text = text_of(self.ask(extra_body={"grammar": 'root ::= "a" [x-z]{2}'}, **options))
            self.assertRegex(text, r"^a[x-z]{2}$")

    def test_logprobs_are_those_of_the_free_model(self):
        answer = self.ask(extra_body={"guided_choice": ["Zebra"]}, logprobs=True, top_logprobs=1)
        first = answer.choices[0].logprobs.content[0]
        self.assertLess(first.logprob, first.top_logprobs[0].logprob)

    def test_what_cannot_be_enforced_is_a_bad_request(self):
        schema = {"type": "array", "uniqueItems": True}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
        with self.assertRaises(openai.BadRequestError) as caught:
            self.ask(response_format=form)
        self.assertIn("uniqueItems", caught.exception.body["message"])
        self.assertEqual(caught.exception.body["param"], "response_format.json_schema.schema")


class Errors(ClientTest):
    def assert_refused(self, kind, call, says=""):
        with self.assertRaises(kind) as caught:
            call()
        for key in ("message", "type", "param", "code"):
            self.assertIn(key, caught.exception.body)
        self.assertIn(says, caught.exception.body["message"])
        return caught.exception

    def test_unknown_model_is_not_found_and_near_names_are_given(self):
        error = self.assert_refused(
            openai.NotFoundError, lambda: chat(self.client, model=SERVER.first + "x"), SERVER.first)
        self.assertEqual(error.code, "model_not_found")

    def test_unknown_module_is_not_found(self):
        modules = {"modules": [{"name": "no-such-module"}]}
        self.assert_refused(openai.NotFoundError, lambda: chat(self.client, extra_body=modules),
                            "no-such-module")

    def test_unknown_position_is_refused(self):
        for position in (2, -1, "0", 1.5):
            with self.subTest(position=position), self.assertRaises(openai.APIStatusError) as caught:
                chat(self.client, extra_body={"lora": [{"id": position, "scale": 1}]})
            self.assertIn(caught.exception.status_code, (400, 404))

    def test_values_out_of_range_are_bad_requests(self):
        for options in ({"temperature": -1}, {"max_tokens": -5}, {"messages": []},
                        {"top_p": 2}, {"logprobs": True, "top_logprobs": 1000},
                        {"logit_bias": {"99999999": 1}}, {"temperature": "warm"}):
            with self.subTest(options=options):
                self.assert_refused(openai.BadRequestError, lambda o=options: chat(self.client, **o))

    def test_prompt_longer_than_the_context_is_a_bad_request(self):
        messages = [{"role": "user", "content": "word " * 20000}]
        error = self.assert_refused(
            openai.BadRequestError, lambda: chat(self.client, messages=messages))
        self.assertEqual(error.code, "context_length_exceeded")


def main():
    global SERVER
    args = graft_process.parse_arguments("model", "adapters")
    SERVER = Server(args.graft, args.model, args.adapters)
    graft_process.run_against(SERVER, "openai", args.junit)


if __name__ == "__main__":
    main()
