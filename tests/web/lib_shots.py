#!/usr/bin/env python3
"""lib_shots.py URL FOLDER: pictures of a status page, light and dark, wide and on a phone. No test: needs its arguments."""
import os
import sys
import tempfile

from lib_driver import Browser


def main(url, folder):
    with tempfile.TemporaryDirectory() as profile, Browser(profile) as browser:
        for name, width, scheme, high in (("light", 1240, "light", 1000), ("dark", 1240, "dark", 1000), ("phone", 400, "light", 2400)):
            browser.width(width, high)
            browser.scheme(scheme)
            browser.go(url)
            browser.within("the charts", "return document.querySelectorAll('#chart-bytes path').length")
            browser.picture(os.path.join(folder, f"web-{name}.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 3 else __doc__)
