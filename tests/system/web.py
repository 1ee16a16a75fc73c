#!/usr/bin/env python3
"""The status page without a browser: what it serves and to whom, dead servers, and requests that are malformed, long,
slow or many."""
import os
import random
import signal
import socket
import sys
import threading
import time

from lib_web import Page, System, check, may_name_hosts, sheaf, within

TOKEN = "0123456789abcdef-_ABCDEF"
EVIL = "<img src=x onerror=alert(1)>\"'&"


def refuse(conf, *args, status, says):
    told = sheaf("--conf", conf, "web", *args, status=status)
    check(says in told and told.count("\n") == 1, f"sheaf web {' '.join(args)} says: {told}")


def wrong_options_are_refused_with_the_remedy(system):
    def token_file(text, mode):
        with open("token.bad", "w") as f:
            f.write(text)
        os.chmod("token.bad", mode)
        return "token.bad"

    conf = system.conf
    refuse(conf, "--listen", "0.0.0.0:0", status=2, says="--token-file")
    refuse(conf, "--listen", "[::]:0", status=2, says="--token-file")
    for bad in ("7480", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", ":80", "::1:80", "[::1:80"):
        refuse(conf, "--listen", bad, status=2, says="not an address like")
    for bad in ("0", "61", "x", "nan", "1s"):
        refuse(conf, "--interval", bad, status=2, says="not a number of seconds")
    refuse(conf, "--token-file", "missing", status=1, says="openssl rand")
    refuse(conf, "--token-file", ".", status=1, says="no regular file")
    refuse(conf, "--token-file", token_file(TOKEN, 0o640), status=1, says="chmod 600")
    refuse(conf, "--token-file", token_file("short", 0o600), status=1, says="16 to 128")
    refuse(conf, "--token-file", token_file("x" * 129, 0o600), status=1, says="16 to 128")
    refuse(conf, "--token-file", token_file(TOKEN + "\nmore", 0o600), status=1, says="one line")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        refuse(conf, "--listen", f"127.0.0.1:{s.getsockname()[1]}", status=1, says="in use")


def it_can_only_be_read(page, _system):
    for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css"),
                       ("/page.svg", "image/svg+xml"), ("/api/status", "application/json"), ("/api/history", "application/json")):
        got = page.ask(path)
        check(got.status == 200 and got.headers["content-type"].startswith(kind) and got.body, f"{path}: {got.status}")
        policy = got.headers["content-security-policy"]
        check(policy.startswith("default-src 'none';") and "unsafe" not in policy and "http" not in policy, policy)
        check(got.headers["x-content-type-options"] == "nosniff" and got.headers["cache-control"] == "no-store", path)
        head = page.ask(path, "HEAD")
        check(head.status == 200 and not head.body and int(head.headers["content-length"]) > 0, f"HEAD {path}")
    for path in ("/x", "/page.html", "/api", "/api/", "/../etc/passwd", "/%2e%2e/etc/passwd", "//"):
        check(page.ask(path).status == 404, path)
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X"):
        got = page.ask("/api/status", method)
        check(got.status == 405 and got.headers["allow"] == "GET, HEAD", f"{method}: {got.status}")
    text = page.ask("/").body + page.ask("/page.js").body + page.ask("/page.css").body
    check(text.replace(b"http://www.w3.org/2000/svg", b"").count(b"http://") == 0 and b"https://" not in text,
          "the page names another host")
    check(b"innerHTML" not in text and b"eval(" not in text, "the page makes code or HTML of texts")


def other_names_of_the_host_are_refused(page, _system):
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1", "127.1.2.3:1234", "[::1]", "[::1]:80"):
        check(page.ask(host=host).status == 200, host)
    for host in ("sheaf.example", "127.0.0.1.example", "localhost.example:80", "10.0.0.1", "[::2]", "[::1", "localhost:80x", "",
                 "x" * 200, "user@localhost"):
        got = page.ask("/api/status", host=host)
        check(got.status in (400, 403) and b"server" not in got.body, f"{host}: {got.status} {got.body}")
    check(page.ask(host=None).status == 400, "HTTP/1.1 without Host")
    check(page.bytes(b"GET /api/status HTTP/1.0\r\n\r\n").split()[1] == b"403", "HTTP/1.0 without Host")


def numbers_are_those_of_sheaf_status(page, system):
    system.pids()
    mine = {s["name"]: s for s in system.status()}
    for name, s in within("an answer of each server", lambda: len(page.servers()) == len(mine) and page.servers()).items():
        for key in ("address", "up", "pid", "roles", "space_total", "pool_bytes"):
            check(s[key] == mine[name][key], f"{name} {key}: {s[key]}, not {mine[name][key]}")
    before = page.api("status")
    sheaf("--conf", system.conf, "cp", "-", "sheaf:/f", data="x" * 3000000)
    sheaf("--conf", system.conf, "cat", "/f")

    def seen():
        h, s = page.api("history"), page.api("status")
        written = sum(v or 0 for v in h["bytes_written_per_s"])
        return written > 0 and s["latency"]["names"]["count"] > before["latency"]["names"]["count"] and s["latency"]["write"]["p99_ns"]

    within("the copy in the history and in the latencies", seen)
    history = page.api("history")
    check(len(history["requests_per_s"]) == 720 and len(history["servers"]) == len(mine), "an hour of points")
    check(all(len(s["up_percent"]) == 60 and s["up_percent"][-1] == 100 for s in history["servers"]), "minutes")
    again = page.api("status")
    check(again["samples"] > before["samples"] and again["total"]["up"] == len(mine), "it goes on looking")


def clients_and_requests_are_shown_as_text(page, system):
    name = EVIL if may_name_hosts() else ""
    client = system.waiter(name)
    try:
        row = within("the wait for a lock", lambda: [q for q in page.api("status")["requests"] if q["op"] == "lock"])[0]
        check(row["state"] == "wait" and row["client"].startswith(name), row)
        status = page.api("status")
        check(status["waiting_for_locks"] == 1, status["waiting_for_locks"])
        check([c for c in status["clients"] if c["name"] == row["client"] and c["in_service"]], status["clients"])
        check(not [q for q in status["slowest"] if q["op"] == "lock"], "a wait for a lock is no slow request")
        check(EVIL.encode() not in page.ask("/").body, "the page has no texts of clients in itself")
    finally:
        client.stdin.close()
        client.wait()


def servers_that_die_are_shown_with_the_reason(page, system):
    pids = system.pids()
    os.kill(pids["server1"], signal.SIGKILL)
    down = within("server1 down", lambda: (s := page.servers()["server1"])["up"] is False and s)
    check(down["down"] == "refused" and down["why"] and down["requests_per_s"] is None, down)
    check(page.servers()["server0"]["up"], "the others are up")
    os.kill(pids["server2"], signal.SIGSTOP)
    within("server2 silent", lambda: page.servers()["server2"]["down"] == "no answer")
    os.kill(pids["server2"], signal.SIGCONT)
    within("server2 up again", lambda: page.servers()["server2"]["up"])
    for pid in (pids["server0"], pids["server2"]):
        os.kill(pid, signal.SIGKILL)
    within("all servers down", lambda: page.api("status")["total"]["up"] == 0)
    check(page.ask("/").status == 200 and page.api("history")["point_s"] == 5, "the page is still served")
    sheaf("--conf", system.conf, "start")
    within("all servers up again", lambda: page.api("status")["total"]["up"] == len(pids))
    with open("web.log") as f:
        log = f.read()
    check("server1 (" in log and " is down: " in log and " is up\n" in log, log)


# ---- hostile requests ----

def long_and_malformed_requests_end(page, _system):
    rng = random.Random(1)
    host = b"Host: localhost\r\n"
    for what, data in (
            ("a long line", b"GET /" + b"a" * 1000000 + b" HTTP/1.1\r\n" + host + b"\r\n"),
            ("a long header", b"GET / HTTP/1.1\r\n" + host + b"X: " + b"b" * 1000000 + b"\r\n\r\n"),
            ("many headers", b"GET / HTTP/1.1\r\n" + host + b"".join(b"X%d: y\r\n" % i for i in range(100000)) + b"\r\n"),
            ("many arguments", b"GET /?" + b"&".join(b"a%d=b" % i for i in range(100000)) + b" HTTP/1.1\r\n" + host + b"\r\n"),
            ("a body without end", b"POST / HTTP/1.1\r\n" + host + b"Content-Length: 99999999999999\r\n\r\n" + b"z" * 1000000),
            ("a negative length", b"GET / HTTP/1.1\r\n" + host + b"Content-Length: -1\r\n\r\n"),
            ("wrong chunks", b"POST / HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\nzzzz\r\n" + b"q" * 100000),
            ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(500) + b"\r\n\r\n"),
            ("zeros", b"\0" * 100000),
            ("noise", rng.randbytes(200000) + b"\r\n\r\n"),
            ("a wrong version", b"GET / HTTP/9.9\r\n" + host + b"\r\n"),
            ("folded headers", b"GET / HTTP/1.1\r\n" + host + b" folded\r\n" * 3000 + b"\r\n")):
        got = page.bytes(data)
        check(not got or got.startswith(b"HTTP/1."), f"{what}: {got[:80]}")
        check(b"200 OK" not in got[:20] or what == "folded headers" or what == "a negative length", f"{what} was answered: {got[:80]}")
        check(page.ask().status == 200, f"the page is not served after {what}")
    for _ in range(200):  # requests that are cut anywhere, and connections that are reset
        s = page.connect()
        s.sendall(b"GET /api/history HTTP/1.1\r\nHost: localhost\r\n\r\n"[:rng.randrange(48)])
        if rng.random() < 0.5:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()
    within("the page after cut requests", lambda: page.ask().status == 200)  # their places are free when their ends are read


def pipelined_requests_get_one_answer(page, _system):
    got = page.bytes(b"GET /page.svg HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
    check(got.count(b"HTTP/1.1 ") == 1, f"{got.count(b'HTTP/1.1 ')} answers")


def slow_senders(page):
    """Begins to send a byte every 0.2 s; returns what waits until all are cut off."""
    ends = []

    def trickle(data, source):
        with page.connect(source) as s:
            s.settimeout(0.2)
            try:
                for i in range(100000):
                    s.sendall(data[i % len(data):][:1])
                    try:
                        if not s.recv(1):
                            break
                    except TimeoutError:
                        pass
            except (ConnectionResetError, BrokenPipeError):
                pass
            ends.append(source)

    senders = [threading.Thread(target=trickle, args=(data, source), daemon=True)
               for data, source in ((b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000, "127.0.0.1"), (b"\r\n", "127.0.0.2"), (b"a", "127.0.0.3"))]
    for t in senders:
        t.start()

    def are_cut_off(_page, _system):
        for t in senders:
            t.join(60)
        check(len(ends) == len(senders), f"only {ends} were cut off")

    return are_cut_off


def many_connections_do_not_keep_others_out(page, _system):
    held = []
    try:
        for _ in range(40):  # one address gets its share of the places
            held.append(page.connect("127.0.0.2"))
        check(page.ask().status == 200, "another address is kept out")
        for i in range(40):  # all places; they are free again when the connections are cut off
            held.append(page.connect(f"127.0.0.{3 + i % 10}"))
        within("a place after the deadline of the idle connections", lambda: page.ask().status == 200)
    finally:
        for s in held:
            s.close()
    with open(f"/proc/{page.process.pid}/limits") as f:
        check("Max open files" in f.read(), "limits")
    check(len(os.listdir(f"/proc/{page.process.pid}/fd")) < 150, "too many open files")


# ---- tokens ----

def beyond_this_host_a_token_is_needed(system):
    with open("token", "w") as f:
        f.write(TOKEN + "\n")
    os.chmod("token", 0o600)
    with Page(system.conf, "--token-file", "token", host="0.0.0.0") as page:
        for path in ("/", "/api/status", "/page.js", "/nothing"):
            got = page.ask(path)
            check(got.status == 401 and TOKEN.encode() not in got.body and "Bearer" in got.headers["www-authenticate"], path)
        for wrong in (TOKEN[:-1], TOKEN + "x", TOKEN.lower(), "", "x" * 10000, TOKEN[:-1] + "%00"):
            for what, got in (("address", page.ask("/?token=" + wrong)),
                              ("header", page.ask(headers=["Authorization: Bearer " + wrong])),
                              ("cookie", page.ask(headers=["Cookie: sheaf_web=" + wrong]))):
                fits = len(wrong) < 1000  # others may be too long for the parser
                check(got.status == 401 or not fits and not 200 <= got.status < 400, f"{what} {wrong[:40]}: {got.status}")
        check(page.ask(headers=["Authorization: Basic " + TOKEN]).status == 401, "Basic")
        got = page.ask("/?token=" + TOKEN)
        check(got.status == 303 and got.headers["location"] == "/", f"{got.status} {got.headers}")
        cookie = got.headers["set-cookie"]
        check("HttpOnly" in cookie and "SameSite" in cookie, cookie)
        check(page.ask(headers=["Cookie: a=b; " + cookie.split(";")[0]]).status == 200, "the cookie")
        check(page.ask(headers=["Authorization: Bearer " + TOKEN], host="sheaf.example").status == 200, "the header")
        check(page.ask("/api/status", "HEAD", ["Authorization: Bearer " + TOKEN]).status == 200, "HEAD")
        check(page.ask("/?token=" + TOKEN, "POST").status == 405, "POST with the token")
        check(TOKEN not in page.url, "the token is printed")


def a_signal_ends_it(page, _system):
    page.process.terminate()
    check(page.process.wait(60) == 0, f"exit status {page.process.returncode}")


def main():
    random.seed(1)
    with System(3) as system:
        wrong_options_are_refused_with_the_remedy(system)
        with Page(system.conf, "--interval", "0.2") as page:
            memory = 0
            slow_senders_are_cut_off = slow_senders(page)  # the others must be served meanwhile
            for test in (it_can_only_be_read, other_names_of_the_host_are_refused, numbers_are_those_of_sheaf_status,
                         clients_and_requests_are_shown_as_text, long_and_malformed_requests_end, pipelined_requests_get_one_answer,
                         slow_senders_are_cut_off, many_connections_do_not_keep_others_out, servers_that_die_are_shown_with_the_reason):
                start = time.monotonic()
                test(page, system)
                print(f"{test.__name__}: {time.monotonic() - start:.1f} s", flush=True)
                memory = memory or page.memory()
            check(page.memory() < memory + (64 << 20), f"memory grew from {memory} to {page.memory()}")
            a_signal_ends_it(page, system)
        beyond_this_host_a_token_is_needed(system)
    return 0


if __name__ == "__main__":
    sys.exit(main())
