#!/usr/bin/env python3
"""The status page in headless Chromium."""
import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from lib_driver import Browser, missing
from lib_web import Page, System, check, may_name_hosts, sheaf, within

EVIL = "<img src=x onerror='document.title=666'>"

# What the page shows of one answer of the API, and the answer.
SHOWN = """return get('/api/status').then((s) => {
  show(s);
  const rows = (id) => [...document.querySelectorAll('#' + id + ' tbody tr')].map((r) => [...r.cells].map((c) => c.innerText));
  return [s, {read: $('read').textContent, write: $('write').textContent, requests: $('requests').textContent,
    space: $('space').textContent, state: $('state').textContent, title: document.title, servers: rows('servers'),
    now: rows('now'), slowest: rows('slowest'), clients: rows('clients')}];
});"""


def size(v):
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    i = 0
    while v >= 1024 and i < 5:
        v, i = v / 1024, i + 1
    digits = 0 if v >= 100 or (i == 0 and v == round(v)) else 1 if v >= 10 else 2
    return f"{v:.{digits}f} {units[i]}"


def the_page_renders(browser, page):
    browser.go(page.url)
    browser.within("three servers up", "return $('state').textContent === '3 servers up'")
    browser.within("charts", "return ['bytes', 'late', 'requests'].every((c) => document.querySelector('#chart-' + c + ' line'))")
    clock = browser.run("return $('clock').textContent")
    browser.within("a later time", "return $('clock').textContent !== arguments[0]", clock)


def its_numbers_are_those_of_the_api(browser, page):
    s, shown = browser.run(SHOWN)
    total = s["total"]
    check(shown["read"] == size(total["bytes_read_per_s"]) + "/s", (shown["read"], total))
    check(shown["write"] == size(total["bytes_written_per_s"]) + "/s", (shown["write"], total))
    check(shown["space"] == size(total["space_avail"]) + " free", (shown["space"], total))
    check(len(shown["servers"]) == len(s["servers"]) == 3, shown["servers"])
    for row, server in zip(shown["servers"], s["servers"]):
        check(server["name"] in row[0] and server["address"] in row[0] and row[1].startswith("up"), row)
        check(row[3] == size(server["bytes_read_per_s"]) + "/s" and row[4] == size(server["bytes_written_per_s"]) + "/s", row)
        check(row[6] == str(server["clients"]), row)
    check(len(shown["slowest"]) == max(1, len(s["slowest"])), shown["slowest"])
    written = browser.within("the copy in the chart", """return get('/api/history').then((h) => {
        latest = h; draw();
        return document.querySelector('#chart-bytes path.line.b') && h.bytes_written_per_s.reduce((a, b) => a + b, 0) });""")
    check(written > 0, written)


def names_of_clients_stay_text(browser, system, page):
    client = system.waiter(EVIL if may_name_hosts() else "")
    try:
        within("the wait for a lock", lambda: page.api("status")["waiting_for_locks"] == 1)
        s, shown = browser.run(SHOWN)
        row = [r for r in shown["now"] if r[1] == "lock"][0]
        check(row[4] == [q for q in s["requests"] if q["op"] == "lock"][0]["client"], row)
        check("<img" in row[4] or not may_name_hosts(), row)
        check(shown["clients"] and browser.run("return document.querySelectorAll('main img').length") == 0, "a name became HTML")
        check("666" not in browser.run("return document.title"), "a name became a script")
    finally:
        client.stdin.close()
        client.wait()


def a_narrow_view_does_not_scroll_sideways(browser, page):
    for width in (400, 320, 700, 1240):
        browser.width(width)
        browser.go(page.url)
        browser.within("servers", "return document.querySelectorAll('#servers .pill').length === 3 && document.querySelector('#chart-bytes line')")
        wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        check(wide[0] <= wide[1] == width, f"{wide[0]} pixels of content, {wide[1]} of the window, {width} wanted")


def light_and_dark_are_readable(browser, page):
    contrast = """const light = (c) => { const v = c.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255)
        .map((x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
        const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
        const card = getComputedStyle(document.querySelector('.card')).backgroundColor;
        return [light(card), ...['h2', '.dim', 'td'].map((e) => ratio(getComputedStyle(document.querySelector('.card ' + e)).color, card))];"""
    for scheme in ("dark", "light"):
        browser.scheme(scheme)
        browser.go(page.url)
        browser.within("servers", "return document.querySelectorAll('#servers .pill').length === 3")
        card, *ratios = browser.run(contrast)
        check((card < 0.2) == (scheme == "dark") and min(ratios) >= 4.5, f"{scheme}: {card} {ratios}")


def a_killed_server_is_shown(browser, system, page):
    os.kill(system.pids()["server1"], signal.SIGKILL)
    browser.within("a server down", "return $('state').textContent === '1 of 3 servers down'")
    s, shown = browser.run(SHOWN)
    check("down: refused" in shown["servers"][1][1] and s["servers"][1]["why"] in shown["servers"][1][1], shown["servers"][1])
    check(shown["servers"][0][1].startswith("up") and shown["title"].startswith("1 down"), shown["title"])
    sheaf("--conf", system.conf, "start")
    browser.within("all up", "return $('state').textContent === '3 servers up'")


def a_page_without_its_server_says_so(browser, page):
    page.process.terminate()
    page.process.wait()
    browser.within("the notice", "return !$('trouble').hidden && $('trouble').textContent.includes('does not answer')")


def nothing_comes_from_other_hosts(browser, page):
    seen = set()
    for entry in browser.log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            seen.add(message["params"]["request"]["url"])
    check(any(url.startswith(page.url + "page.js") for url in seen), seen)
    foreign = [url for url in seen if not url.startswith(page.url) and not url.startswith(("data:", "chrome:", "about:"))]
    check(not foreign, foreign)


def there_are_no_script_errors(browser):
    check(browser.run("return window.pageErrors") == [], browser.run("return window.pageErrors"))
    severe = [e for e in browser.log("browser") if e["level"] == "SEVERE"]
    check(not severe, severe)


def main():
    if missing():
        print(f"{missing()} is not installed: tools/deps.sh --web")
        return 77
    with System(3) as system, Page(system.conf, "--interval", "0.5") as page, Browser(os.path.abspath("profile")) as browser:
        the_page_renders(browser, page)
        sheaf("--conf", system.conf, "cp", "-", "sheaf:/f", data="x" * 3000000)
        its_numbers_are_those_of_the_api(browser, page)
        names_of_clients_stay_text(browser, system, page)
        light_and_dark_are_readable(browser, page)
        a_narrow_view_does_not_scroll_sideways(browser, page)
        a_killed_server_is_shown(browser, system, page)
        there_are_no_script_errors(browser)
        nothing_comes_from_other_hosts(browser, page)
        a_page_without_its_server_says_so(browser, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
