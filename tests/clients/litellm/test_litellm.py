#!/usr/bin/env python3
"""LiteLLM's library, unchanged, against the real binary on a real model with an adapter, as an OpenAI,
a vLLM and an Anthropic endpoint.

    test_litellm.py --graft BINARY --model MODEL.gguf --adapters FOLDER [--junit FILE]

FOLDER holds the adapter `pirate`.
"""

import asyncio
import json
import os
import pathlib
import sys
import unittest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a table of prices
os.environ["LITELLM_TELEMETRY"] = "False"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import graft_process  # noqa: E402
import litellm  # noqa: E402

litellm.suppress_debug_info = True  # it prints where to report errors, also those that are meant
SERVER = None  # the process, set by main()
QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "additionalProperties": False,
                   "properties": {"city": {"type": "string", "enum": ["Paris", "Tokyo"]}},
                   "required": ["city"]}}}


def options_of(provider, model, **options):
    base = SERVER.url if provider == "anthropic" else SERVER.url + "/v1"
    return {"model": f"{provider}/{model}", "api_base": base, "api_key": "any", "num_retries": 0,
            "timeout": 120} | options


def complete(model="base", provider="openai", **options):
    options = {"messages": QUESTION, "temperature": 0, "max_tokens": 16} | options
    return litellm.completion(**options_of(provider, model, **options))


def text_of(answer):
    return answer.choices[0].message.content


class Completion(unittest.TestCase):
    def test_an_answer_is_complete(self):
        answer = complete()
        self.assertIn("Tokyo", text_of(answer))
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertGreater(answer.usage.prompt_tokens, 5)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_every_provider_gives_the_same_text(self):
        expected = text_of(complete())
        for provider in ("hosted_vllm", "anthropic"):
            with self.subTest(provider=provider):
                self.assertEqual(text_of(complete(provider=provider)), expected)

    def test_streams_add_up_to_the_answer(self):
        plain = complete()
        for provider in ("openai", "hosted_vllm", "anthropic"):
            with self.subTest(provider=provider):
                chunks = list(complete(provider=provider, stream=True, stream_options={"include_usage": True}))
                whole = litellm.stream_chunk_builder(chunks, messages=QUESTION)
                self.assertGreater(len(chunks), 3)
                self.assertEqual(text_of(whole), text_of(plain))
                self.assertEqual(whole.usage.completion_tokens, plain.usage.completion_tokens)
                self.assertEqual(whole.choices[0].finish_reason, plain.choices[0].finish_reason)

    def test_async_base_and_adapter_at_once(self):
        async def ask(model):
            return text_of(await litellm.acompletion(**options_of(
                "openai", model, messages=QUESTION, temperature=0, max_tokens=16)))

        async def run():
            return await asyncio.gather(*map(ask, ("base", "pirate") * 2))
        alone = [text_of(complete("base")), text_of(complete("pirate"))]
        self.assertNotEqual(*alone)
        self.assertEqual(asyncio.run(run()), alone * 2)

    def test_modules_in_the_body(self):
        answer = complete(extra_body={"modules": [{"name": "pirate"}]})
        self.assertEqual(text_of(answer), text_of(complete("pirate")))

    def test_text_completion(self):
        answer = litellm.text_completion(**options_of("text-completion-openai", "base", prompt="One, two, three,",
                                                      temperature=0, max_tokens=6))
        self.assertIn("four", answer.choices[0].text)


class Tools(unittest.TestCase):
    OPTIONS = {"messages": [{"role": "user", "content": "How warm is it in Paris?"}], "tools": [WEATHER],
               "tool_choice": {"type": "function", "function": {"name": "get_weather"}}, "max_tokens": 100}

    def check(self, call):
        self.assertTrue(call.id)
        self.assertEqual(call.function.name, "get_weather")
        self.assertIn(json.loads(call.function.arguments)["city"], ("Paris", "Tokyo"))

    def test_a_forced_tool_is_called(self):
        for provider in ("openai", "anthropic"):
            with self.subTest(provider=provider):
                choice = complete(provider=provider, **self.OPTIONS).choices[0]
                self.assertEqual(choice.finish_reason, "tool_calls")
                self.check(*choice.message.tool_calls)

    def test_a_streamed_call_is_the_same(self):
        plain = complete(**self.OPTIONS).choices[0].message.tool_calls[0]
        whole = litellm.stream_chunk_builder(list(complete(stream=True, **self.OPTIONS)))
        call, = whole.choices[0].message.tool_calls
        self.check(call)
        self.assertEqual(call.function.arguments, plain.function.arguments)


class Embeddings(unittest.TestCase):
    def test_texts_become_vectors(self):
        answer = litellm.embedding(**options_of("openai", "base", input=["a cat", "a dog"]))
        one, other = [item["embedding"] for item in answer.data]
        self.assertEqual(len(one), len(other))
        self.assertNotEqual(one, other)
        self.assertGreater(answer.usage.prompt_tokens, 3)


class Errors(unittest.TestCase):
    def test_an_unknown_model_is_not_found(self):
        for provider in ("openai", "hosted_vllm", "anthropic"):
            with self.subTest(provider=provider), self.assertRaises(litellm.NotFoundError) as caught:
                complete("pirat", provider=provider)
            self.assertIn("pirate", str(caught.exception))

    def test_a_bad_parameter_is_a_bad_request(self):
        for provider in ("openai", "hosted_vllm", "anthropic"):
            with self.subTest(provider=provider), self.assertRaises(litellm.BadRequestError) as caught:
                complete(provider=provider, temperature=-1)
            self.assertIn("temperature", str(caught.exception))

    def test_a_prompt_that_is_too_long_is_told_apart(self):
        with self.assertRaises(litellm.ContextWindowExceededError):
            complete(messages=[{"role": "user", "content": "word " * 5000}])


def main():
    global SERVER
    args = graft_process.parse_arguments("model", "adapters")
    SERVER = graft_process.GraftProcess(args.graft, args.model, "--ctx", 4096, "--threads", 1,
                                        *graft_process.module_options(args.adapters, "pirate"))
    graft_process.run_against(SERVER, "litellm", args.junit)


if __name__ == "__main__":
    main()
