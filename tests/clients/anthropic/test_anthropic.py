#!/usr/bin/env python3
"""Anthropic's client against the real binary, on the counting model (tests/synthetic/README.md).

    test_anthropic.py --graft BINARY [--junit FILE]
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import anthropic  # noqa: E402
import graft_process  # noqa: E402

SERVER = None  # the process, set by main()


# The client has no argument for a temperature any more; the server's field stays.
GREEDY = {"temperature": 0}


def message(client, text, max_tokens=50, **options):
    return client.messages.create(model=options.pop("model", "base"), max_tokens=max_tokens, extra_body=GREEDY,
                                  messages=[{"role": "user", "content": text}], **options)


class MessagesTest(unittest.TestCase):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=SERVER.url, api_key="any", max_retries=0, timeout=60)

    def tearDown(self):
        self.client.close()

    def test_plain_answer(self):
        answer = message(self.client, "v")
        self.assertEqual(answer.content[0].text, "wxyz")
        self.assertEqual(answer.stop_reason, "end_turn")
        self.assertEqual(answer.role, "assistant")
        self.assertGreater(answer.usage.input_tokens, 1)
        self.assertEqual(answer.usage.output_tokens, 5)  # the end of the text counts

    def test_a_module_by_model_name(self):
        self.assertEqual(message(self.client, "d", model="step2").content[0].text, "fhjlnprtvxz")

    def test_token_limit(self):
        answer = message(self.client, "5", max_tokens=3)
        self.assertEqual(answer.content[0].text, "678")
        self.assertEqual(answer.stop_reason, "max_tokens")

    def test_stop_sequence_is_named(self):
        answer = message(self.client, "5", stop_sequences=["901"])
        self.assertEqual(answer.content[0].text, "678")
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", "901"))

    def test_blocks_and_system_prompt(self):
        answer = self.client.messages.create(
            model="base", max_tokens=50, extra_body=GREEDY, system=[{"type": "text", "text": "Count."}],
            messages=[{"role": "user", "content": [{"type": "text", "text": "x"}]}])
        self.assertEqual(answer.content[0].text, "yz")

    def test_the_last_message_begins_the_answer(self):
        answer = self.client.messages.create(
            model="base", max_tokens=50, extra_body=GREEDY,
            messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "w"}])
        self.assertEqual(answer.content[0].text, "xyz")

    def test_stream_helper_equals_plain(self):
        with self.client.messages.stream(model="base", max_tokens=50, extra_body=GREEDY,
                                         messages=[{"role": "user", "content": "r"}]) as stream:
            pieces = list(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual("".join(pieces), "stuvwxyz")
        self.assertGreater(len(pieces), 3)
        plain = message(self.client, "r")
        self.assertEqual(final.content[0].text, plain.content[0].text)
        self.assertEqual(final.stop_reason, "end_turn")
        self.assertEqual(final.usage.output_tokens, plain.usage.output_tokens)

    def test_events_come_in_order(self):
        events = message(self.client, "x", stream=True)
        self.assertEqual([event.type for event in events],
                         ["message_start", "content_block_start", "content_block_delta",
                          "content_block_delta", "content_block_stop", "message_delta", "message_stop"])

    def test_count_tokens_equals_usage(self):
        counted = self.client.messages.count_tokens(model="base", messages=[{"role": "user", "content": "abc"}])
        usage = message(self.client, "abc").usage
        self.assertEqual(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_errors_are_typed(self):
        with self.assertRaises(anthropic.NotFoundError) as caught:
            message(self.client, "x", model="step3")
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")
        self.assertIn("step2", caught.exception.body["error"]["message"])
        with self.assertRaises(anthropic.BadRequestError) as caught:
            message(self.client, "x", max_tokens=-1)
        self.assertEqual(caught.exception.body["type"], "error")

    def test_closing_a_stream_leaves_the_server_well(self):
        for _ in range(5):
            stream = message(self.client, "5", max_tokens=400, stream=True)
            next(iter(stream))
            stream.close()
        self.assertEqual(message(self.client, "x").content[0].text, "yz")


def main():
    global SERVER
    args = graft_process.parse_arguments()
    SERVER = graft_process.GraftProcess(
        args.graft, graft_process.COUNTING_MODEL, "--ctx", 4096, "--threads", 1,
        *graft_process.module_options(graft_process.COUNTING_ADAPTERS, "step2"))
    graft_process.run_against(SERVER, "anthropic", args.junit)


if __name__ == "__main__":
    main()
