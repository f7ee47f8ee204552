"""The demo over HTTP: its answers, its limits, and that hostile text and foreign pages get nowhere."""

import http.client
import json
import math
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import vaswani.infer.demo.answers
import vaswani.infer.demo.server
import vaswani.infer.demo.training
from tests import tiny
from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.infer.demo.__main__ import main
from vaswani.infer.demo.answers import Demo, check_sentence
from vaswani.infer.demo.server import LARGEST, PAGE, listen
from vaswani.infer.demo.training import examples, languages, marked, training_words
from vaswani.infer.html import inline_scripts, read_template, script_json, script_policy
from vaswani.infer.runs import open_run
from vaswani.infer.translate.breaks import joined_by_script
from vaswani.keys import short_names

NASTY = "</script><script>alert(1)</script> <img src=x onerror=alert(1)> \u2028 🐕"
JSON = {"Content-Type": "application/json"}


def answer(text: str, target: str) -> dict[str, object]:
    """A fake of `Demo.answer`."""
    check_sentence(text)
    return {"runs": [{"name": "fake", "hypotheses": [{"text": text, "score": 0.0}], "maps": {}}]}


@contextmanager
def serving(answer: Callable[[str, str], dict[str, object]], host: str = "127.0.0.1") -> Iterator[ThreadingHTTPServer]:
    served = listen(host, 0)
    served.answers = {"/translate": answer}
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield served
    served.shutdown()
    served.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    with serving(answer) as served:
        yield served


def wait_until(condition: Callable[[], object]) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("waited in vain")


def connections() -> int:
    """How many threads serve one."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def ask(server: ThreadingHTTPServer, method: str, path: str, body: bytes | None = None, **headers: str):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=300)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, given)
    response = connection.getresponse()
    found = response.status, response.headers, response.read()
    connection.close()
    return found


def post(server: ThreadingHTTPServer, body: bytes, **headers: str):
    status, _, answer = ask(server, "POST", "/translate", body, **{"Content_Type": "application/json", **headers})
    return status, json.loads(answer)


def test_an_answer_is_json_and_hostile_text_stays_text(server: ThreadingHTTPServer) -> None:
    status, found = post(server, json.dumps({"text": NASTY}).encode())
    assert status == 200 and found["runs"][0]["hypotheses"][0]["text"] == NASTY


def test_every_run_answers_with_translations_scores_and_maps(tmp_path: Path) -> None:
    run = open_run(tiny.write_run(tmp_path / "run"), "latest")
    demo = Demo([run, run], ["runs/one", NASTY], {"beam": 1, "alpha": None, "extra_length": None})
    runs = json.loads(json.dumps(demo.answer(f"The dog {NASTY}"), allow_nan=False))["runs"]
    assert [found["name"] for found in runs] == ["one", Path(NASTY).name]
    for found in runs:
        scores = [one["score"] for one in found["hypotheses"]]
        assert len(scores) == 5 and scores == sorted(scores, reverse=True)
        cross = found["maps"]["cross"]
        assert len(cross["weights"]) == len(cross["weights"][0]) == 2  # layers and heads
        assert len(cross["weights"][0][0]) == len(cross["queries"])
        assert all(abs(sum(row) - 1000) < len(row) for row in cross["weights"][1][1])
        assert not any(("▁" in key and len(key) > 1) or "<0x" in key for key in cross["keys"])


def config_of(**data: str) -> ConfigDict:
    cfg = default()
    cfg.data.update(data)
    return cfg


def test_words_that_training_has_not_read_are_told() -> None:
    known = training_words(config_of(train="grammar:train:500"))
    parts = marked("Hello world, my name is Anna; the DOG will sleep.", known)
    assert "".join(text for text, _ in parts) == "Hello world, my name is Anna; the DOG will sleep."
    assert [text for text, is_unseen in parts if is_unseen] == ["Hello", "world", "name"]
    assert marked("The he then.", frozenset({"the", "then"})) == [("The ", False), ("he", True), (" then.", False)]
    assert [text for text, is_unseen in marked("我们abc 们", frozenset({"我", "abc"})) if is_unseen] == ["们", "们"]


def test_a_corpus_that_is_not_here_or_too_large_marks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for spec, why in {
        "": "no corpus is named",
        "tfds:wmt14/de-en:train:{en,de}": "is not on this machine",
        f"text:{tmp_path}/none.{{en,de}}": "none.en",
    }.items():
        with pytest.raises(UserError, match=why):
            training_words(config_of(train=spec))
        assert languages(config_of(train=spec)) == ""
        assert examples(config_of(test=spec, valid=spec)) == []
    monkeypatch.setattr(vaswani.infer.demo.training, "MOST", 10)
    with pytest.raises(UserError, match=r"^the training corpus has more than 10 pairs$"):
        training_words(config_of(train="grammar:train:11"))
    assert len(training_words(config_of(train="grammar:train:10"))) > 10


def test_sentences_to_try_are_short_and_of_the_test_corpus(tmp_path: Path) -> None:
    lines = ["x" * 81, *(f"sentence {n}" for n in range(9))]
    (tmp_path / "test.tsv").write_text("".join(f"{line}\tb\n" for line in lines))
    config = config_of(train="grammar:train:{de,en}", test=f"tsv:{tmp_path}/test.tsv", valid="grammar:valid")
    assert examples(config) == [f"sentence {n}" for n in range(5)]
    assert languages(config) == "de → en"
    config.data.test = ""
    assert len(examples(config)) == 5


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    run = open_run(tiny.write_run(tmp_path / "run"), "latest")
    return Demo([run], ["run"], {"beam": 1, "alpha": None, "extra_length": None})


def test_a_text_is_split_as_the_command_does(demo: Demo) -> None:
    assert demo.sentences("The dog. It is old!\nGood") == {"sentences": ["The dog.", "It is old!", "Good"]}


@pytest.mark.slow
def test_a_target_of_the_user_s_own_is_scored_and_looked_at(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = demo.answer("The dog sleeps.", "Der Hund")["runs"]
    assert found["forced"]["text"] == "Der Hund"
    cross = found["maps"]["cross"]
    assert "".join(cross["queries"][:-1]).strip() == "Der\u2009Hund" and cross["queries"][-1] == "</s>"
    n = len(cross["queries"])
    log_prob = sum(math.log(choice["probability"] / 1000) for choice in cross["choices"])
    assert found["forced"]["score"] == pytest.approx(log_prob / ((5 + n) / 6) ** 0.6, rel=0.01)
    assert found["score"].startswith("score = log p / ((5 + n)/6)^0.6: ")
    assert "choices" not in found["maps"]["encoder"]
    (own,) = demo.answer("The dog sleeps.")["runs"]
    assert "forced" not in own and own["hypotheses"] == found["hypotheses"]
    monkeypatch.setattr(vaswani.infer.demo.answers, "LONGEST_MAP", 2)  # too long for maps, which a score does not need
    (long,) = demo.answer("The dog sleeps.", "Der Hund")["runs"]
    assert long["forced"] == found["forced"] and long["maps"] == {}
    assert long["note"] == "no attention is shown for more than 2 subwords"
    n = len(own["maps"]["cross"]["queries"])
    log_prob = sum(math.log(choice["probability"] / 1000) for choice in own["maps"]["cross"]["choices"])
    assert own["hypotheses"][0]["score"] == pytest.approx(log_prob / ((5 + n) / 6) ** 0.6, rel=1e-3), "what it wrote"
    with pytest.raises(UserError, match=r"give one line of 1 to 1,000 characters a sentence; here are 1,001$"):
        demo.answer("The dog sleeps.", "x" * 1001)
    with pytest.raises(UserError, match=r"here are 0$"):
        demo.answer("\xad\x00")


@pytest.mark.slow
def test_the_beam_s_leaves_are_the_hypotheses(demo: Demo) -> None:
    (found,) = demo.answer("The dog sleeps.")["runs"]
    (drawn,) = json.loads(json.dumps(demo.beam("The dog sleeps."), allow_nan=False))["runs"]
    leaves = [node for step in drawn["tree"]["steps"] for node in step if node["rank"]]
    scores = [node["score"] for node in sorted(leaves, key=lambda node: node["rank"])]
    assert scores == pytest.approx([one["score"] for one in found["hypotheses"]], abs=1e-4)
    (refused,) = demo.beam("a dog " * 99)["runs"]
    assert "cannot be drawn" in refused["note"]


def test_a_length_is_warmed_up_once_and_never_while_another_answer_is_on_its_way(
    demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[str] = []
    monkeypatch.setattr(vaswani.infer.demo.answers, "_answer_of", lambda shown, text, target: answered.append(text))
    long = "The dog sleeps. " * 4
    for text in ("a", "b", long, "c", long):
        assert demo.warm(text) == {}
    assert answered == ["a", long]
    with demo._lock:
        demo.warm(2 * long)
    assert answered == ["a", long]


def test_a_port_that_is_taken_is_refused_before_the_run_is_opened(server: ThreadingHTTPServer) -> None:
    port = server.server_address[1]
    with pytest.raises(UserError, match=rf"^--host=127.0.0.1 --port={port}: .*; try another --port$"):
        main(SimpleNamespace(host="127.0.0.1", port=port, workdir="no run", checkpoint=None))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"text": 1}',
        b"\xff",
        b'{"text": ""}',
        b'{"text": "a\\nb"}',
        b"[" * 9000,
        b'{"text": "a", "target": 1}',
    ],
)
def test_wrong_requests_are_one_line_with_400(server: ThreadingHTTPServer, body: bytes) -> None:
    status, answer = post(server, body)
    assert status == 400 and list(answer) == ["error"] and "\n" not in answer["error"]


def test_limits_and_foreign_pages(server: ThreadingHTTPServer) -> None:
    assert post(server, b"x" * (LARGEST + 1))[0] == 413
    assert post(server, json.dumps({"text": "x" * 1001}).encode())[0] == 400
    assert post(server, b"{}", Content_Type="text/plain")[0] == 415, "a form of another site may send this"
    assert post(server, b"{}", Host="evil.example:80")[0] == 403, "a name that was rebound to this machine"
    assert ask(server, "GET", "/", Host="evil.example")[0] == 403
    assert ask(server, "GET", "/../server.py")[0] == 404
    assert ask(server, "POST", "/translate", None, Content_Length="-1", Content_Type="application/json")[0] == 411
    assert ask(server, "PUT", "/")[0] == 501


@pytest.mark.parametrize("host", ["é" * 70, "\udcff"], ids=["too long", "in no encoding"])
def test_a_host_that_no_name_can_be_is_refused(host: str) -> None:
    with pytest.raises(UserError, match=r"^--host=.*: not a host name$"):
        main(SimpleNamespace(host=host, port=0, workdir="no run", checkpoint=None))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "127.0.0.2"])
def test_the_address_that_is_printed_can_be_opened(host: str) -> None:
    with serving(answer, host) as server:
        for headers, status in (({}, 200), ({"Host": "evil.example"}, 403)):
            connection = http.client.HTTPConnection(host, server.server_address[1], timeout=300)
            connection.request("GET", "/", headers=headers)
            assert connection.getresponse().status == status
            connection.close()


def test_names_are_compared_as_browsers_send_them() -> None:
    with serving(answer, "LocalHost") as server:
        assert server.host == "localhost"
        server.host = "mybox"
        assert ask(server, "GET", "/", Host="MyBox:80")[0] == 200


def test_what_the_page_says_at_first_is_text(server: ThreadingHTTPServer) -> None:
    server.about = {"runs": [NASTY], "examples": [NASTY]}
    page = ask(server, "GET", "/")[2].decode()
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert json.loads(found) == server.about and "<script>alert" not in page
    del server.about


def test_the_page_may_run_its_own_script_only_and_ask_its_own_server_only(server: ThreadingHTTPServer) -> None:
    status, headers, body = ask(server, "GET", "/")
    page, policy = body.decode(), headers["Content-Security-Policy"]
    assert status == 200 and page == read_template(PAGE).replace("__DATA__", script_json(server.about))
    assert policy.startswith("default-src 'none'; ") and f"script-src {script_policy(inline_scripts(page))};" in policy
    assert "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert not re.search(
        r"https?:|//[a-z]|url\(|@import|src=|href=|innerHTML|insertAdjacent|document\.write|eval\(", page
    )
    assert re.findall(r"fetch\((.*?),", page) == ["path"]
    assert set(re.findall(r"ask\((.*?),", page)) == {"path", '"/sentences"', '"/translate"', '"/warm"', '"/beam"'}
    assert not re.search(r"<[^>]+ on[a-z]+=", page), "a handler in the markup would need an unsafe policy"


def test_whatever_is_refused_is_one_line_of_json_under_the_same_policy(server: ThreadingHTTPServer) -> None:
    for method, path in (("PUT", "/"), ("<b>", "/"), ("GET", "/<b>"), ("GET", "/" + "x" * 70_000)):
        _, headers, body = ask(server, method, path)
        assert list(json.loads(body)) == ["error"] and b"\n" not in body
        assert headers["Content-Type"] == "application/json"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_a_client_that_leaves_before_its_answer_is_not_worth_a_line(capfd: pytest.CaptureFixture) -> None:
    asked, left = threading.Event(), threading.Event()

    def late(text: str, target: str) -> dict[str, object]:
        asked.set()
        left.wait(60)
        return answer(text, target)

    with serving(late) as server:
        body = b'{"text": "a"}'
        head = f"POST /translate HTTP/1.0\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection(server.server_address[:2]) as client:
            client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            assert asked.wait(60)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves at once
        left.set()
        wait_until(lambda: not connections())
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_server_s_own_is_told_of(capfd: pytest.CaptureFixture) -> None:
    def failing(text: str, target: str) -> dict[str, object]:
        raise RuntimeError("a bug")

    with serving(failing) as server, pytest.raises(http.client.RemoteDisconnected):
        post(server, b'{"text": "a"}')
    assert "RuntimeError: a bug" in capfd.readouterr().err


def test_more_connections_than_threads_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vaswani.infer.demo.server, "MOST", 3)
    with serving(answer) as server:
        slow = [socket.create_connection(server.server_address[:2]) for _ in range(3)]
        wait_until(lambda: connections() == 3)
        for _ in range(3):
            status, headers, body = ask(server, "GET", "/")
            assert (status, headers["Retry-After"]) == (503, "1")
            assert list(json.loads(body)) == ["error"] and connections() == 3
        for client in slow:
            client.close()
        wait_until(lambda: not connections())
        assert post(server, b'{"text": "a"}')[0] == 200


def test_a_client_that_sends_a_byte_at_a_time_is_left_in_the_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(vaswani.infer.demo.server, "PATIENCE", 2.0)
    with serving(answer) as server, socket.create_connection(server.server_address[:2]) as client:
        client.sendall(b"GET / HTTP/1.0\r\nX: ")
        wait_until(connections)
        for _ in range(200):
            if not connections():
                break
            with suppress(OSError):
                client.send(b"x")
            time.sleep(0.05)
        assert not connections()
    assert capfd.readouterr() == ("", "")


def test_a_run_whose_parameters_are_not_finite_is_refused_at_the_start(tmp_path: Path) -> None:
    run = open_run(tiny.write_run(tmp_path / "run"), "latest")
    broken = run._replace(params=jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), run.params))
    with pytest.raises(UserError, match=r"the parameters of this run are not finite$"):
        Demo([broken], ["run"], {"beam": 1, "alpha": None, "extra_length": None})


def test_runs_of_one_name_are_told_apart() -> None:
    assert short_names(["runs/a", ".", "x/b", "y/b"], separator="/") == ["a", ".", "x/b", "y/b"]


def test_a_host_that_is_not_this_machine_is_not_blamed_on_the_port() -> None:
    with pytest.raises(UserError, match=r"^--host=192\.0\.2\.1 --port=0: .*; --host must be an address of this"):
        main(SimpleNamespace(host="192.0.2.1", port=0, workdir="no run", checkpoint=None))


def test_an_address_of_ipv6_can_be_opened() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with serving(answer, "::1") as server:
        for headers, status in (({}, 200), ({"Host": "evil.example"}, 403)):
            connection = http.client.HTTPConnection("::1", server.server_address[1], timeout=300)
            connection.request("GET", "/", headers=headers)
            assert connection.getresponse().status == status
            connection.close()


def test_an_empty_host_does_not_open_the_demo_to_the_network() -> None:
    with pytest.raises(UserError, match=r"^--host= is empty: name an address"):
        main(SimpleNamespace(host="", port=0, workdir="no run", checkpoint=None))


def test_a_thread_that_cannot_start_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    served = listen("127.0.0.1", 0)
    monkeypatch.setattr(ThreadingHTTPServer, "process_request", failing)
    for _ in range(vaswani.infer.demo.server.MOST + 1):
        with pytest.raises(RuntimeError, match="new thread"):
            served.process_request(None, None)
    served.server_close()


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_the_page_joins_translations_as_the_command_does_pieces() -> None:
    texts = [
        ["你好!", "再见!"],
        ["你好,", "(再见)"],
        ["他说：“你好。”", "“再见。”"],
        ["Hi!", "你好"],
        ["東京", "3時"],
        ["One.", "", "Two."],
        ["、「はい」", "ー々"],
    ]
    (script,) = inline_scripts(read_template(PAGE))
    begin = script.index("// As `infer.translate` joins")
    code = script[begin : script.index("function draw()", begin)]
    program = f"{code} console.log(JSON.stringify({json.dumps(texts)}.map(joined)))"
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [joined_by_script([text for text in line if text]) for line in texts]
