#!/usr/bin/env python3
"""The official openai client over TLS and with API keys, against the real binary on the counting model.

    test_access.py --graft BINARY --model COUNTING.gguf --adapters FOLDER [--junit FILE]

Certificates are made here with openssl. FOLDER holds the adapters `step2` and `upper`.
"""

import concurrent.futures
import pathlib
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import graft_process  # noqa: E402
import openai  # noqa: E402

ARGS = None  # set by main()
QUESTION = [{"role": "user", "content": "w"}]


def make_certificate(folder, name):
    certificate, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
    return certificate, key


class AccessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        cls.certificate, key = make_certificate(folder, "server")
        cls.other_certificate, _ = make_certificate(folder, "other")
        keys = folder / "keys.jsonl"
        cls.alice = cls.new_key(keys, "alice", "--module", "upper")
        cls.bob = cls.new_key(keys, "bob", "--requests-per-minute", "2")
        cls.server = graft_process.GraftProcess(
            ARGS.graft, ARGS.model, "--threads", 1, "--shutdown-timeout", 5, "--ssl-certfile", cls.certificate,
            "--ssl-keyfile", key, "--api-keys-file", keys,
            *graft_process.module_options(ARGS.adapters, "step2", "upper"))

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        cls.folder.cleanup()
        if status != 0:
            raise AssertionError(f"the server stopped with status {status}")

    @staticmethod
    def new_key(file, name, *more):
        return subprocess.run([ARGS.graft, "keys", "new", file, name, *more], check=True,
                              capture_output=True, text=True).stdout.strip()

    def client(self, key, certificate=None):
        context = ssl.create_default_context(cafile=certificate or self.certificate)
        made = openai.OpenAI(base_url=self.server.url + "/v1", api_key=key, max_retries=0, timeout=60,
                             http_client=openai.DefaultHttpxClient(verify=context))
        self.addCleanup(made.close)
        return made

    @staticmethod
    def chat(client, model="base", **options):
        return client.chat.completions.create(model=model, messages=QUESTION, temperature=0, **options)

    def test_answers_over_tls_plain_and_streamed(self):
        client = self.client(self.alice)
        self.assertTrue(self.server.url.startswith("https://"))
        self.assertEqual(self.chat(client).choices[0].message.content, "xyz")
        stream = self.chat(client, model="upper", stream=True)
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in stream
                                 if chunk.choices), "XYZ")

    def test_a_certificate_that_is_not_trusted_is_refused_by_the_client(self):
        with self.assertRaises(openai.APIConnectionError) as caught:
            self.chat(self.client(self.alice, self.other_certificate))
        self.assertIn("certificate verify failed", str(caught.exception.__cause__))
        self.assertEqual(self.chat(self.client(self.alice)).choices[0].message.content, "xyz")

    def test_a_hundred_handshakes_beside_streams(self):
        def stream_text(_):
            stream = self.client(self.alice).completions.create(
                model="base", prompt="5", max_tokens=300, temperature=0, stream=True)
            return "".join(chunk.choices[0].text for chunk in stream if chunk.choices)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            streams = [pool.submit(stream_text, i) for i in range(4)]
            for _ in range(100):
                with self.client(self.alice) as client:
                    self.assertEqual(client.models.list().data[0].id, "base")
        texts = {stream.result() for stream in streams}
        self.assertEqual(len(texts), 1)
        self.assertEqual(len(texts.pop()), 300)

    def test_a_wrong_key_is_an_authentication_error(self):
        with self.assertRaises(openai.AuthenticationError) as caught:
            self.chat(self.client("gk-wrong"))
        self.assertEqual(caught.exception.code, "invalid_api_key")
        self.assertEqual(caught.exception.response.headers["www-authenticate"], "Bearer")

    def test_a_forbidden_module_does_not_exist(self):
        client = self.client(self.alice)
        self.assertNotIn("step2", [model.id for model in client.models.list().data])
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat(client, model="step2")
        self.assertEqual(caught.exception.code, "model_not_found")

    def test_a_rate_limit_says_when_to_come_again(self):
        client = self.client(self.bob)
        self.chat(client)
        self.chat(client)
        with self.assertRaises(openai.RateLimitError) as caught:
            self.chat(client)
        self.assertLessEqual(1, int(caught.exception.response.headers["retry-after"]))
        self.assertEqual(caught.exception.code, "rate_limit_exceeded")


def main():
    global ARGS
    ARGS = graft_process.parse_arguments("model", "adapters")
    sys.exit(0 if graft_process.run_tests("access", ARGS.junit) else 1)


if __name__ == "__main__":
    main()
