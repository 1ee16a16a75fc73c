// The status page: asks /api/status once per sample and /api/history every five seconds, and draws them.
// Texts of servers and clients are set as textContent, never as HTML.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const errors = []; // read by the browser test
window.addEventListener("error", (e) => errors.push(String(e.message)));
window.addEventListener("unhandledrejection", (e) => errors.push(String(e.reason)));
window.pageErrors = errors;

// ---- numbers as text ----

function scaled(v, base, units) {
  let i = 0;
  while (v >= base && i < units.length - 1) { v /= base; i++; }
  return [v >= 100 || (i === 0 && v === Math.round(v)) ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2), units[i]];
}

const bytes = (v) => v === null || v === undefined ? "–" : scaled(v, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]).join(" ");
const speed = (v) => v === null || v === undefined ? "–" : bytes(v) + "/s";
const count = (v) => v === null || v === undefined ? "–" : scaled(v, 1000, ["", "k", "M", "G"]).join(" ").trim();
const perSecond = (v) => v === null || v === undefined ? "–" : count(v < 10 ? Math.round(v * 10) / 10 : Math.round(v)) + "/s";

function time(ns) {
  if (ns === null || ns === undefined) return "–";
  if (ns < 60e9) return scaled(ns, 1000, ["ns", "µs", "ms", "s"]).join(" ");
  return span(ns / 1e9);
}

// Servers count times by octaves; the first one ends at 4 µs.
const about = (ns) => ns !== null && ns < 4096 ? "< 4 µs" : time(ns);
// A tick of a scale: no digits that say nothing.
const short = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

function span(s) {
  if (s < 60) return Math.round(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}

const ago = (s) => s < 2 ? "now" : span(s) + " ago";

// ---- elements ----

function element(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function svg(name, attributes, text) {
  const e = document.createElementNS(SVG, name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  return e;
}

function set(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

// Fills a table: each row is a list of texts or elements. Labels come from the head of the table.
function fill(id, rows, none) {
  const table = $(id), heads = [...table.tHead.rows[0].cells], body = document.createElement("tbody");
  for (const row of rows) {
    const tr = body.insertRow();
    row.forEach((cell, i) => {
      const td = tr.insertCell();
      td.className = heads[i].className;
      td.dataset.label = heads[i].textContent;
      if (cell instanceof Element) td.append(cell); else td.textContent = cell;
    });
  }
  if (!rows.length) {
    const td = body.insertRow().insertCell();
    td.colSpan = heads.length;
    td.className = "none";
    td.textContent = none;
  }
  table.tBodies[0].replaceWith(body);
}

// ---- charts ----

// The lowest of 1, 2, 5, 10, ... times a power of `base` that is not below v.
function ceiling(v, base) {
  let unit = 1;
  if (base === 1024) while (unit * 1024 <= v) unit *= 1024;
  let step = 1;
  for (;;) {
    for (const k of [1, 2, 5]) if (k * step * unit >= v) return k * step * unit;
    step *= 10;
  }
}

function scale(lines, o) {
  let top = 0, low = Infinity;
  for (const l of lines) for (const v of l.values) if (v !== null && v > 0) { top = Math.max(top, v); low = Math.min(low, v); }
  if (!o.log) {
    const max = ceiling(Math.max(top, o.least), o.base);
    return { y: (v) => v / max, ticks: [0, max / 2, max] };
  }
  if (!top) { low = 1e5; top = 1e6; }
  const from = Math.floor(Math.log10(low)), to = Math.max(from + 1, Math.ceil(Math.log10(top)));
  const ticks = [];
  for (let k = from; k <= to; k++) ticks.push(10 ** k);
  return { y: (v) => (Math.log10(Math.max(v, 10 ** from)) - from) / (to - from), ticks };
}

// The pieces of a line between points without a value.
function pieces(values) {
  const out = [];
  let run = null;
  values.forEach((v, i) => {
    if (v === null) { run = null; return; }
    if (!run) out.push(run = []);
    run.push([i, v]);
  });
  return out;
}

function chart(id, lines, o) {
  const to = $(id), w = Math.max(240, to.clientWidth || 360), h = 180, left = 66, right = 6, top = 8, bottom = 20;
  const n = lines[0].values.length, sc = scale(lines, o);
  const x = (i) => left + (w - left - right) * i / Math.max(1, n - 1);
  const y = (v) => h - bottom - (h - bottom - top) * sc.y(v);
  const all = [];
  for (const t of sc.ticks) {
    const at = Math.round(y(t)) + 0.5;
    all.push(svg("line", { class: "grid", x1: left, x2: w - right, y1: at, y2: at }),
      svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, short(o.text(t))));
  }
  for (const m of w < 480 ? [60, 30, 0] : [60, 45, 30, 15, 0]) {
    const at = left + (w - left - right) * (1 - m / 60);
    all.push(svg("text", { x: at, y: h - 4, "text-anchor": m === 60 ? "start" : m ? "middle" : "end" }, m ? "−" + m + " min" : "now"));
  }
  for (const l of lines) {
    for (const run of pieces(l.values)) {
      const d = run.map((p, k) => (k ? "L" : "M") + x(p[0]).toFixed(1) + " " + y(p[1]).toFixed(1)).join("");
      if (l.fill)
        all.push(svg("path", { class: "fill " + l.color, d: d + "L" + x(run[run.length - 1][0]).toFixed(1) + " " + y(0) + "L" + x(run[0][0]).toFixed(1) + " " + y(0) + "Z" }));
      all.push(svg("path", { class: "line " + l.color + (l.thin ? " thin" : ""), d: run.length > 1 ? d : d + "h1" }));
    }
  }
  to.setAttribute("viewBox", "0 0 " + w + " " + h);
  to.replaceChildren(...all);
}

function key(id, entries) {
  $(id).replaceChildren(...entries.map(([color, text]) => element("span", color, text)));
}

// One bar for each minute: how busy the server was, red where it was down.
function spark(h) {
  const all = svg("svg", { class: "spark", viewBox: "0 0 180 26", preserveAspectRatio: "none", role: "img", "aria-label": "bytes in each minute of the last hour" });
  const top = Math.max(1, ...h.bytes_per_s.map((v) => v || 0));
  h.up_percent.forEach((up, i) => {
    const v = h.bytes_per_s[i] || 0, high = Math.max(v ? 2 : 0, 24 * v / top);
    all.append(svg("rect", { class: "base", x: i * 3, y: 24.5, width: 2, height: 1.5 }));
    if (up === null) return;
    if (up < 100) all.append(svg("rect", { class: "off", x: i * 3, y: 0, width: 2, height: 26 * (1 - up / 100) }));
    if (v) all.append(svg("rect", { class: "up", x: i * 3, y: 26 - high, width: 2, height: high }));
  });
  return all;
}

// ---- the page ----

let latest = null; // history

function room(total, avail) {
  const used = total ? (total - avail) / total : 0;
  const box = element("div", "room"), bar = svg("svg", { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none" });
  bar.append(svg("rect", { class: "rail", width: 100, height: 6 }), svg("rect", { class: used > 0.9 ? "full" : "", width: 100 * used, height: 6 }));
  box.append(bar, element("span", "dim", bytes(avail) + " free of " + bytes(total)));
  return box;
}

function serverRow(s, i) {
  const name = element("div"), state = element("div");
  name.append(element("b", "", s.name), element("div", "dim", s.address + " · " + s.roles.join(", ")));
  state.append(element("span", "pill " + (s.up ? "good" : "bad"), s.up ? "up" : "down" + (s.down ? ": " + s.down : "")));
  if (s.up) state.append(element("div", "dim", "for " + span(s.uptime_s)));
  else if (s.why) state.append(element("div", "why", s.why));
  const h = latest && latest.servers[i];
  return [name, state, h ? spark(h) : "", speed(s.bytes_read_per_s), speed(s.bytes_written_per_s), perSecond(s.requests_per_s),
    s.up ? count(s.clients) : "–", s.up && s.roles.includes("data") ? room(s.space_total, s.space_avail) : "–"];
}

const requestRow = (q) => [time(q.age_ns), q.op, q.state + " for " + time(q.state_ns), q.server, q.client || "(the server)", String(q.uid), String(q.ino)];

function late(l, what) {
  return l.count ? what + " " + about(l.p50_ns) + ", 99 %: " + about(l.p99_ns) : what + " –";
}

function show(s) {
  const t = s.total, down = t.servers - t.up, pill = $("state"), used = t.space_total - t.space_avail;
  set("state", !s.samples ? "asking the servers …" : down ? down + " of " + t.servers + " servers down" : t.servers + " server" + (t.servers === 1 ? "" : "s") + " up");
  pill.className = "pill " + (!s.samples ? "" : down ? "bad" : "good");
  document.title = (down ? down + " down · " : "") + "Sheaf";
  set("clock", new Date(s.time * 1000).toLocaleString());
  set("read", speed(t.bytes_read_per_s));
  set("write", speed(t.bytes_written_per_s));
  set("requests", perSecond(t.requests_per_s));
  set("read-late", late(s.latency.read, "median"));
  set("write-late", late(s.latency.write, "median"));
  set("names-late", late(s.latency.names, "names: median"));
  set("space", t.space_total ? bytes(t.space_avail) + " free" : "–");
  set("space-of", t.space_total ? Math.round(100 * used / t.space_total) + " % of " + bytes(t.space_total) + " used" : " ");
  $("space-bar").setAttribute("width", t.space_total ? 100 * used / t.space_total : 0);
  $("space-bar").setAttribute("class", used > 0.9 * t.space_total ? "full" : "");
  fill("servers", s.servers.map(serverRow), "no answer yet");
  set("in-service", s.in_service + (s.waiting_for_locks ? ", " + s.waiting_for_locks + " of them wait for locks" : ""));
  fill("now", s.requests.map(requestRow), "none");
  fill("slowest", s.slowest.map((q) => [...requestRow(q), ago(q.seen_s_ago)]), "none was seen");
  fill("clients", s.clients.sort((a, b) => b.in_service - a.in_service || a.seen_s_ago - b.seen_s_ago)
    .map((c) => [c.name, String(c.in_service), count(c.samples), time(c.slowest_ns), ago(c.seen_s_ago)]), "none was seen");
  set("foot", "Sheaf " + s.version + " · asks the servers every " + s.interval_s + " s");
}

function draw() {
  const h = latest;
  if (!h) return;
  chart("chart-bytes", [{ values: h.bytes_read_per_s, color: "a", fill: true }, { values: h.bytes_written_per_s, color: "b", fill: true }],
    { base: 1024, least: 1024, text: speed });
  chart("chart-requests", [{ values: h.requests_per_s, color: "c", fill: true }], { base: 1000, least: 10, text: perSecond });
  chart("chart-late", [["read", "a"], ["write", "b"], ["names", "c"], ["sync", "d"]].flatMap(([k, color]) =>
    [{ values: h[k].p99_ns, color, thin: true }, { values: h[k].p50_ns, color }]), { log: true, text: time });
}

function trouble(text) {
  $("trouble").hidden = !text;
  set("trouble", text);
  if (text) { $("state").className = "pill bad"; set("state", "no data"); }
}

async function get(path) {
  const r = await fetch(path, { cache: "no-store" });
  if (!r.ok) throw new Error(r.status === 401 ? "The token is missing or wrong: open this page with ?token=TOKEN again." : "The page's server answered " + r.status + ".");
  return r.json();
}

async function turn(last) {
  let wait = 1000;
  if (!document.hidden) {
    try {
      const now = Date.now();
      if (now - last >= 5000) {
        latest = await get("/api/history");
        draw();
        last = now;
      }
      const s = await get("/api/status");
      show(s);
      trouble("");
      wait = Math.max(500, s.interval_s * 1000);
    } catch (e) {
      trouble(e instanceof TypeError ? "sheaf web does not answer: is it running? The numbers below are old." : e.message);
    }
  }
  setTimeout(turn, wait, last);
}

key("key-bytes", [["a", "reading"], ["b", "writing"]]);
key("key-requests", [["c", "requests"]]);
key("key-late", [["a", "read"], ["b", "write"], ["c", "names"], ["d", "sync"], ["thin", "thin: 99 %"]]);
window.addEventListener("resize", draw);
turn(0);
