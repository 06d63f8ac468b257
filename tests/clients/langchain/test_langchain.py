#!/usr/bin/env python3
"""LangChain's ChatOpenAI, unchanged, against the real binary on a real model with two adapters.

    test_langchain.py --graft BINARY --model MODEL.gguf --adapters FOLDER [--junit FILE]

FOLDER holds the adapters `json` and `pirate`.
"""

import asyncio
import os
import pathlib
import sys
import typing
import unittest

os.environ["LANGSMITH_TRACING"] = "false"  # nothing may leave the machine
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import graft_process  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage  # noqa: E402
from langchain_core.prompts import ChatPromptTemplate  # noqa: E402
from langchain_core.runnables import RunnableParallel  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langchain_openai import ChatOpenAI, OpenAIEmbeddings  # noqa: E402

SERVER = None  # the process, set by main()
QUESTION = "What is the capital of Japan?"
MODELS = ("base", "json", "pirate")


def chat(model="base", **options):
    options = {"temperature": 0, "max_tokens": 16} | options
    return ChatOpenAI(model=model, base_url=SERVER.url + "/v1", api_key="any", max_retries=0, timeout=120, **options)


class Place(pydantic.BaseModel):
    """A place. Every part is bounded, so that the answer ends."""
    name: str = pydantic.Field(max_length=12)
    kind: typing.Literal["city", "village"]


@tool
def get_weather(city: typing.Literal["Paris", "Tokyo"], unit: typing.Literal["C", "F"]) -> str:
    """The weather of a city."""
    return f"20 {unit} in {city}"


class Chat(unittest.TestCase):
    def test_an_answer_has_usage_and_metadata(self):
        answer = chat().invoke(QUESTION)
        self.assertIn("Tokyo", answer.content)
        usage = answer.usage_metadata
        self.assertGreater(usage["input_tokens"], 5)
        self.assertEqual(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
        self.assertIn(answer.response_metadata["finish_reason"], ("stop", "length"))
        self.assertTrue(answer.response_metadata["model_name"])
        self.assertEqual(chat(max_tokens=2).invoke(QUESTION).response_metadata["finish_reason"], "length")

    def test_a_stream_adds_up_to_the_answer(self):
        chunks = list(chat(stream_usage=True).stream(QUESTION))
        plain = chat().invoke(QUESTION)
        self.assertGreater(len(chunks), 3)
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        self.assertEqual(whole.content, plain.content)
        for name in ("input_tokens", "output_tokens", "total_tokens"):
            self.assertEqual(whole.usage_metadata[name], plain.usage_metadata[name])
        self.assertEqual(whole.response_metadata["finish_reason"], plain.response_metadata["finish_reason"])

    def test_a_prompt_with_roles_piped_into_the_model(self):
        prompt = ChatPromptTemplate.from_messages([("system", "Answer in one word."), ("human", "{question}")])
        piped = (prompt | chat()).invoke({"question": QUESTION})
        direct = chat().invoke([SystemMessage("Answer in one word."), HumanMessage(QUESTION)])
        self.assertEqual(piped.content, direct.content)

    def test_stop_strings_and_logprobs(self):
        whole = chat().invoke(QUESTION).content
        self.assertEqual(chat().invoke(QUESTION, stop=["Tokyo"]).content, whole[:whole.index("Tokyo")])
        answer = chat(logprobs=True, max_tokens=3).invoke(QUESTION)
        self.assertEqual(len(answer.response_metadata["logprobs"]["content"]), 3)

    def test_base_and_adapters_in_parallel_answer_as_alone(self):
        alone = {name: chat(name).invoke(QUESTION).content for name in MODELS}
        self.assertEqual(len(set(alone.values())), 3)
        together = RunnableParallel({name: chat(name) for name in MODELS})
        for answers in together.batch([QUESTION] * 2):
            self.assertEqual({name: answer.content for name, answer in answers.items()}, alone)

    def test_async_streams_at_once(self):
        async def stream_text(name):
            return "".join([chunk.content async for chunk in chat(name).astream(QUESTION)])

        async def run():
            return await asyncio.gather(*map(stream_text, MODELS))
        self.assertEqual(asyncio.run(run()), [chat(name).invoke(QUESTION).content for name in MODELS])

    def test_modules_with_weights_in_the_body(self):
        mixed = chat(extra_body={"modules": [{"name": "pirate", "scale": 1}]}).invoke(QUESTION)
        self.assertEqual(mixed.content, chat("pirate").invoke(QUESTION).content)

    def test_the_responses_api_gives_the_same_text(self):
        answer = chat(use_responses_api=True).invoke(QUESTION)
        self.assertEqual(answer.text, chat().invoke(QUESTION).content)
        self.assertGreater(answer.usage_metadata["output_tokens"], 1)

    def test_errors_are_those_of_the_openai_client(self):
        with self.assertRaises(openai.NotFoundError):
            chat("no-such-model").invoke(QUESTION)
        with self.assertRaises(openai.BadRequestError):
            chat(temperature=-1).invoke(QUESTION)


class Tools(unittest.TestCase):
    MODEL_OPTIONS = {"max_tokens": 100}

    def forced(self):
        return chat(**self.MODEL_OPTIONS).bind_tools([get_weather], tool_choice="get_weather")

    def test_a_forced_tool_is_called_and_its_result_is_taken(self):
        question = HumanMessage("How warm is it in Paris?")
        answer = self.forced().invoke([question])
        self.assertEqual([call["name"] for call in answer.tool_calls], ["get_weather"])
        self.assertEqual(answer.invalid_tool_calls, [])
        result = get_weather.invoke(answer.tool_calls[0])
        self.assertIsInstance(result, ToolMessage)
        final = chat(max_tokens=8).bind_tools([get_weather], tool_choice="none").invoke([question, answer, result])
        self.assertEqual(final.tool_calls, [])
        self.assertTrue(final.content)

    def test_a_streamed_call_is_the_same(self):
        plain = self.forced().invoke("How warm is it in Paris?")
        chunks = list(self.forced().stream("How warm is it in Paris?"))
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        self.assertEqual([(call["name"], call["args"]) for call in whole.tool_calls],
                         [(call["name"], call["args"]) for call in plain.tool_calls])

    def test_structured_output_by_every_method(self):
        for method in ("json_schema", "function_calling"):
            with self.subTest(method=method):
                model = chat(**self.MODEL_OPTIONS).with_structured_output(Place, method=method)
                self.assertIsInstance(model.invoke("Name a place in Japan."), Place)


class Embeddings(unittest.TestCase):
    def test_texts_are_embedded_one_by_one(self):
        # Its check of lengths would send the tokens of another vocabulary.
        model = OpenAIEmbeddings(model="base", base_url=SERVER.url + "/v1", api_key="any",
                                 check_embedding_ctx_length=False)
        one, other = model.embed_documents(["a cat", "a dog"])
        self.assertEqual(len(one), len(other))
        self.assertNotEqual(one, other)
        self.assertEqual(model.embed_query("a cat"), one)


def main():
    global SERVER
    args = graft_process.parse_arguments("model", "adapters")
    SERVER = graft_process.GraftProcess(args.graft, args.model, "--ctx", 4096, "--threads", 1,
                                        *graft_process.module_options(args.adapters, "json", "pirate"))
    graft_process.run_against(SERVER, "langchain", args.junit)


if __name__ == "__main__":
    main()
