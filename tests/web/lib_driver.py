"""A headless Chromium through chromedriver, by the WebDriver protocol, with the Python standard library alone."""
import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request

PATIENCE = 60


def missing():
    """What is not installed, or None."""
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return program
    return None


class Browser:
    def __init__(self, folder):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.session = ""
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                self.root = "http://127.0.0.1:" + line.rstrip(".\n").split()[-1]
                break
        else:
            raise AssertionError("chromedriver does not start")
        options = {"args": ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}",
                            "--disable-background-networking", "--disable-dev-shm-usage", "--window-size=1240,1400"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options,
                  "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}, "timeouts": {"script": PATIENCE * 1000}}
        self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            if self.session:
                self.call("DELETE", f"/session/{self.session}")
        finally:
            self.driver.terminate()
            self.driver.wait()

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE * 2) as r:
                return json.load(r)["value"]
        except urllib.error.HTTPError as e:
            raise AssertionError(json.load(e)["value"]["message"]) from None

    def do(self, command, **body):
        return self.call("POST", f"/session/{self.session}/{command}", body)

    def go(self, url):
        self.do("url", url=url)

    def run(self, script, *args):
        """The result of a script, `return ...`; a promise is waited for."""
        return self.do("execute/sync", script=script, args=list(args))

    def within(self, what, script, *args):
        end = time.monotonic() + PATIENCE
        while True:
            value = self.run(script, *args)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"not within {PATIENCE} s: {what}")
            time.sleep(0.1)

    def devtools(self, command, **params):
        return self.do("goog/cdp/execute", cmd=command, params=params)

    def log(self, kind):
        return self.do("se/log", type=kind)

    def width(self, pixels, high=1400, scale=1):
        self.devtools("Emulation.setDeviceMetricsOverride", width=pixels, height=high, deviceScaleFactor=scale, mobile=pixels < 600)

    def scheme(self, name):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("GET", f"/session/{self.session}/screenshot")))
