"""The page that follows a run: served to this machine, read-only, in a real browser."""

import contextlib
import http.client
import json
import shutil
import subprocess
import sys
import threading
import time

import pytest

import chromium
import ecop
from ecop import cli, runs
from ecop.errors import UserError
from ecop.live.follow import Follower
from ecop.live.server import Live, Server

TINY = {"seeds": 2, "episodes": 2, "horizon": 20, "hidden": (4,), "critic_epochs": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "run"
    ecop.train("PointCircle", "ppo_lag", iterations=7, out=path, watch=None, **TINY)
    return path


@pytest.fixture
def path(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


@contextlib.contextmanager
def serving(path):
    with Server(Live(path, trust=False), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server, target, method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    headers = {} if host is None else {"Host": host}
    connection.request(method, target, headers=headers)
    answer = connection.getresponse()
    found = answer.status, dict(answer.headers), answer.read()
    connection.close()
    return found


def state_of(path):
    entries = sorted(path.rglob("*"))
    return [(str(entry), entry.lstat().st_mtime_ns) for entry in entries]


def test_what_is_served_and_to_whom(path):
    before = state_of(path)
    with serving(path) as server:
        assert server.server_address[0] == "127.0.0.1"
        for target in ("/", "/page.css", "/page.js", "/data.json", "/nothing"):
            status, headers, _ = ask(server, target)
            assert status == (404 if target == "/nothing" else 200)
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
        data = json.loads(ask(server, "/data.json")[2])
        assert data["title"] == "ppo_lag on PointCircle"
        assert data["x"] == list(range(1, 8))
        assert data["limits"] == [10.0]
        last = [m for m in runs.read_metrics(path) if m["iteration"] == 7]
        assert [c[-1] for c in data["reward"]] == pytest.approx(
            [m["reward"] for m in last], rel=1e-5
        )
        assert [c[-1] for c in data["costs_by_seed"][0]] == [
            m["costs"][0] for m in last
        ]
        assert ask(server, "/", "HEAD")[2] == b""
        for method in ("POST", "PUT", "DELETE"):
            assert ask(server, "/data.json", method)[0] == 501
        for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1"):
            status, _, body = ask(server, "/data.json", host=host)
            assert (status, b"PointCircle" in body) == (421, False)
        for target in ("/../config.json", "/config.json", "//etc/passwd", "/page.html"):
            assert ask(server, target)[0] == 404
    assert state_of(path) == before


def test_a_port_that_is_taken_is_said(path, capsys):
    with serving(path) as server:
        arguments = ["watch", str(path), "--port", str(server.server_port)]
        with pytest.raises(SystemExit) as end:
            cli.main(arguments)
        assert end.value.code == 2
        assert f"Port {server.server_port} is taken" in capsys.readouterr().err
    with pytest.raises(UserError, match="Port 99999 cannot be used"):
        Server(Live(path, trust=False), 99999)
    with pytest.raises(UserError, match="is not a run folder"):
        Live(path.parent, trust=False)


def test_only_what_is_new_is_read(path):
    """Half lines wait, damaged ones are left out, a file that is cut is read anew."""
    file = path / "metrics.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 14
    file.write_bytes(b"".join(lines[:4]) + lines[4][:30])
    follower = Follower(path)
    assert follower.update()
    assert follower.curves()["x"] == [1, 2]
    assert not follower.update()
    with file.open("ab") as more:
        more.write(lines[4][30:] + lines[5] + lines[6].replace(b"reward", b"rewarf"))
        more.write(b"".join(lines[7:10]))
    assert follower.update()
    assert follower.curves()["x"] == [1, 2, 3, 5]
    file.write_bytes(b"".join(lines[:2]))
    assert follower.update()
    assert follower.curves()["x"] == [1]
    file.unlink()
    assert not follower.update()


def test_long_curves_are_thinned(path):
    follower = Follower(path)
    follower.update()
    line = follower.lines[1]
    follower.lines = {
        k: {s: {**m, "iteration": k, "reward": float(k)} for s, m in line.items()}
        for k in range(1, 1001)
    }
    found = follower.curves()
    assert len(found["x"]) == 334
    assert found["x"][:2] == [3, 6]
    assert found["reward"][0][:2] == [2.0, 5.0]
    assert found["x"][-1] == 1000


def test_strangers_code_is_not_run_for_a_clip(tmp_path, monkeypatch):
    (tmp_path / "live_costs.py").write_text("def one(*step):\n    return 1.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    env = ecop.from_gymnasium(
        "CartPole-v1", horizon=5, costs="live_costs:one", limits=[1.0]
    )
    path = tmp_path / "run"
    ecop.train(env, "ppo", iterations=1, out=path, watch=None, seeds=1, episodes=2)
    env.close()
    live = Live(path, trust=False)
    live.clips.draw()
    assert live.clips.note.startswith("No clip:")
    assert "gym:CartPole-v1" in live.clips.note
    assert not live.clips.data


def test_the_command_serves_until_it_is_stopped(path):
    process = subprocess.Popen(
        [sys.executable, "-m", "ecop.cli", "watch", str(path), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    port = int(address.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/data.json")
    assert json.loads(connection.getresponse().read())["iteration"] == 7
    connection.close()
    process.terminate()  # a shell's background jobs do not hear Ctrl-C
    assert process.wait(60) == 0
    process.stdout.close()


@pytest.mark.skipif(chromium.PATH is None, reason="needs Debian's package chromium")
def test_the_page_follows_a_run_in_a_browser(path, tmp_path):
    with serving(path) as server:
        browser = chromium.Browser(tmp_path / "profile")
        try:
            look_at(browser, server, path, tmp_path)
        finally:
            browser.close()


def look_at(browser, server, path, folder):
    def until(code):
        end = time.monotonic() + 60
        while not browser.run(code):
            assert time.monotonic() < end, (code, browser.messages)
            time.sleep(0.1)

    tiles = "document.getElementById('tiles').innerText"
    browser.open(server.address)
    until("document.querySelectorAll('.chart').length === 3")
    assert browser.run("document.title") == "ppo_lag on PointCircle"
    assert browser.run("document.querySelectorAll('path.mean').length") == 3
    assert browser.run("document.querySelectorAll('path.seed').length") == 6
    assert browser.run("document.querySelectorAll('.limit').length") == 1
    assert browser.run(f"{tiles}.startsWith('7')")
    assert "A clip follows" in browser.run("document.body.innerText")
    ecop.resume(path, iterations=21, watch=None)
    server.live.clips.draw()
    until(f"{tiles}.startsWith('21')")
    until("document.getElementById('clip').naturalWidth > 100")
    assert "iteration 21, first seed" in browser.run("document.body.innerText")
    for name, width, dark in (("wide", 1280, False), ("narrow", 380, True)):
        browser.open(server.address, width, dark=dark)
        until("document.getElementById('clip').naturalWidth > 100")
        over = "document.documentElement.scrollWidth - innerWidth"
        assert browser.run(over) <= 0, name
        browser.picture(folder / f"{name}.png")
        assert browser.messages == []
        assert all(url.startswith(server.address) for url in browser.requests)
