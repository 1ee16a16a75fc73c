#!/bin/bash
# The dashboard and the alert rules of dist/: valid, and every metric that they use is one that servers report. The rules are
# checked by promtool where it is installed.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/system/session.inc"
unset SHEAF_CONF

port=$(free_ports 1)
expect 0 init fs --servers 1 --port "$port"
confs+=("$work/fs/sheaf.conf")
export SHEAF_CONF=$work/fs/sheaf.conf
expect 0 start
seq 1000 >numbers
expect 0 cp numbers sheaf:/numbers

echo "the dashboard and the rules use metrics that servers have"
python3 - "$((port + 1000))" "$tree/dist" <<'END' || fail "see above"
import json, re, sys, urllib.request
port, dist = sys.argv[1:]
text = urllib.request.urlopen("http://127.0.0.1:%s/metrics" % port).read().decode()
known = {re.match(r"[a-z_]+", line).group(0) for line in text.splitlines() if line.startswith("sheaf_")}
d = json.load(open(dist + "/grafana-sheaf.json"))
ids = [p["id"] for p in d["panels"]]
assert len(ids) == len(set(ids)) and d["uid"] == "sheaf" and d["schemaVersion"] >= 30
cells = set()
for p in d["panels"]: # no two panels cover one place
    g = p["gridPos"]
    for c in [(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])]:
        assert c not in cells and c[0] < 24, p["title"]
        cells.add(c)
dashboard = [t["expr"] for p in d["panels"] for t in p["targets"]]
rules = re.findall(r"^    expr: (.*)$", open(dist + "/prometheus-sheaf.yml").read(), re.M)
names = re.findall(r"alert: (\w+)", open(dist + "/prometheus-sheaf.yml").read())
assert len(rules) >= 8 and len(rules) == len(names) == len(set(names)), names
for expr in dashboard + [json.loads(r) for r in rules]:
    assert expr.count("(") == expr.count(")") and expr.count("{") == expr.count("}"), expr
    for name in re.findall(r"sheaf_[a-z_]+", expr):
        assert name in known, "%s is not a metric: %s" % (name, expr)
END

if command -v promtool >/dev/null; then
	echo "promtool"
	promtool check rules "$tree/dist/prometheus-sheaf.yml" >out 2>err || fail "promtool check rules"
else
	echo "promtool: skipped, it is not installed (Debian: prometheus)"
fi
echo "done"
