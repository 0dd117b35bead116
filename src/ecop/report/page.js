"use strict";
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const NS = "http://www.w3.org/2000/svg";
  // Thirteen colours that differ, on white and on black (a test measures how much);
  // dashes and shapes tell them apart without colour.
  const LIGHT = [
    "#0057c2", "#d55e00", "#00875a", "#c2188f", "#a07800", "#00a3c4", "#6b7680",
    "#7b3fd0", "#d11f2d", "#6aa300", "#7a4a21", "#101d6b", "#f06fa8",
  ];
  const DARK = [
    "#5aa9ff", "#ff8a2a", "#22c58b", "#ff5fd2", "#e6c229", "#5fe3f5", "#a9b4bd",
    "#b08cff", "#ff5a5f", "#b4ec51", "#c99566", "#3f63ff", "#ffc2dc",
  ];
  const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2", "1 2"];
  const SHAPES = ["circle", "square", "triangle", "diamond", "cross", "plus", "down"];

  function element(name, attributes = {}, parent = null, text = null) {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  }

  function html(name, properties = {}, parent = null) {
    const made = Object.assign(document.createElement(name), properties);
    if (parent) parent.appendChild(made);
    return made;
  }

  const unique = (list) => [...new Set(list)];
  const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
  const dark = () => document.documentElement.dataset.theme === "dark";

  function style(index) {
    const colours = dark() ? DARK : LIGHT;
    const turn = Math.floor(index / colours.length);
    return {
      colour: colours[index % colours.length],
      dash: DASHES[(index + turn) % DASHES.length],
      shape: SHAPES[(index + 2 * turn) % SHAPES.length],
      width: index === 0 ? 2.8 : 1.8,
    };
  }

  function mark(parent, shape, x, y, r, colour, open = false) {
    const paths = {
      circle: `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
      square: `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
      triangle: `M${x},${y - r * 1.2}l${r * 1.2},${r * 2.1}h${-r * 2.4}z`,
      down: `M${x},${y + r * 1.2}l${r * 1.2},${-r * 2.1}h${-r * 2.4}z`,
      diamond: `M${x},${y - r * 1.4}l${r * 1.4},${r * 1.4}l${-r * 1.4},${r * 1.4}l${-r * 1.4},${-r * 1.4}z`,
      cross: `M${x - r},${y - r}l${2 * r},${2 * r}M${x - r},${y + r}l${2 * r},${-2 * r}`,
      plus: `M${x - r * 1.3},${y}h${2.6 * r}M${x},${y - r * 1.3}v${2.6 * r}`,
    };
    const line = shape === "cross" || shape === "plus";
    element("path", {
      d: paths[shape], fill: line || open ? "none" : colour, stroke: colour,
      "stroke-width": line ? 2 : 1.2, class: "mark",
    }, parent);
  }

  // Scales

  function ticks(low, high, count) {
    const span = high - low || 1;
    const rough = span / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough);
    const found = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) {
      found.push(Math.abs(v) < step * 1e-6 ? 0 : v);
    }
    return found;
  }

  function short(value) {
    const size = Math.abs(value);
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
    if (size >= 100) return value.toFixed(0);
    return String(+value.toPrecision(3));
  }

  function range(values, pad = 0.06) {
    const good = values.filter(Number.isFinite);
    let low = Math.min(...good);
    let high = Math.max(...good);
    if (!good.length) [low, high] = [0, 1];
    if (low === high) [low, high] = [low - 0.5, high + 0.5];
    const more = (high - low) * pad;
    return [low - more, high + more];
  }

  // Axes in a box that has its place already; returns what is needed to draw into it.
  function panel(box, title, options) {
    html("h4", { textContent: title }, box);
    const width = Math.max(260, box.clientWidth - 16);
    const height = options.height || Math.round(Math.min(300, Math.max(200, width * 0.62)));
    const left = options.left || 48;
    const edge = { left, right: width - 10, top: 8, bottom: height - 36 };
    const svg = element("svg", {
      viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.say,
    }, box);
    const [x0, x1] = options.x;
    const [y0, y1] = options.y;
    const sx = (v) => edge.left + ((v - x0) / (x1 - x0)) * (edge.right - edge.left);
    const sy = (v) => edge.bottom - ((v - y0) / (y1 - y0)) * (edge.bottom - edge.top);
    const back = element("g", {}, svg);
    for (const v of ticks(x0, x1, width / 85)) {
      element("line", { x1: sx(v), x2: sx(v), y1: edge.top, y2: edge.bottom, class: "grid" }, back);
      element("text", { x: sx(v), y: edge.bottom + 15, "text-anchor": "middle" }, svg, short(v));
    }
    if (!options.rows) {
      for (const v of ticks(y0, y1, height / 50)) {
        element("line", { x1: edge.left, x2: edge.right, y1: sy(v), y2: sy(v), class: "grid" }, back);
        element("text", { x: edge.left - 6, y: sy(v) + 4, "text-anchor": "end" }, svg, short(v));
      }
    }
    element("path", {
      d: `M${edge.left},${edge.top}V${edge.bottom}H${edge.right}`, class: "axis",
    }, svg);
    element("text", {
      x: (edge.left + edge.right) / 2, y: height - 5, "text-anchor": "middle",
    }, svg, options.xlabel);
    return { box, svg, back, sx, sy, edge, width, height };
  }

  // Learning curves

  function summary(series, row) {
    return series.x.map((x, k) => {
      const values = series.runs.map((run) => run.y[row][k]);
      const m = mean(values);
      return { x, m, spread: Math.sqrt(mean(values.map((v) => (v - m) ** 2))) };
    });
  }

  function line(parent, points, sx, sy, look, width) {
    element("path", {
      d: points.map((p, i) => `${i ? "L" : "M"}${sx(p.x).toFixed(1)},${sy(p.m).toFixed(1)}`).join(""),
      fill: "none", stroke: look.colour, "stroke-width": width, "stroke-dasharray": look.dash,
      "stroke-linejoin": "round", class: "curve",
    }, parent);
  }

  function curveChart(parent, series, row, title, limit, mode) {
    const lines = series.map((s) => ({ ...s, points: summary(s, row) }));
    // PPO sees no cost; its own would squeeze those of all others.
    // So would the first tenth, in which all begin to learn.
    const xs = lines.flatMap((s) => s.points.map((p) => p.x));
    const start = row ? Math.max(...xs) / 10 : 0;
    const judged = lines.filter((s) => row === 0 || s.name !== DATA.reference);
    const values = (judged.length ? judged : lines).flatMap((s) => mode === "mean"
      ? s.points.filter((p) => p.x >= start).flatMap((p) => [p.m - p.spread, p.m + p.spread])
      : s.runs.flatMap((run) => run.y[row].filter((_, k) => s.x[k] >= start)));
    if (limit !== null) values.push(limit);
    const say = `${title} by environment steps. ` + lines.map((s) =>
      `${s.label}: ${short(s.points.at(-1).m)} at the end`).join("; ")
      + (limit !== null ? `; limit ${short(limit)}` : "");
    const p = panel(parent, title, {
      x: [0, Math.max(...xs)], y: range(values), xlabel: "environment steps", say,
    });
    // A picture in the picture: what lies beyond an axis is cut off there.
    const [wide, high] = [p.edge.right - p.edge.left + 6, p.edge.bottom - p.edge.top + 8];
    const inside = element("svg", {
      x: p.edge.left, y: p.edge.top - 4, width: wide, height: high,
      viewBox: `${p.edge.left} ${p.edge.top - 4} ${wide} ${high}`, class: "inside",
    }, p.svg);
    for (const s of lines) {
      const look = style(s.index);
      if (mode === "mean") {
        if (s.runs.length > 1) {
          const up = s.points.map((q) => `${p.sx(q.x).toFixed(1)},${p.sy(q.m + q.spread).toFixed(1)}`);
          const down = s.points.map((q) => `${p.sx(q.x).toFixed(1)},${p.sy(q.m - q.spread).toFixed(1)}`);
          element("polygon", {
            points: [...up, ...down.reverse()].join(" "), fill: look.colour, opacity: 0.14,
          }, inside);
        }
        line(inside, s.points, p.sx, p.sy, look, look.width);
      } else {
        for (const run of s.runs) {
          line(inside, s.x.map((x, k) => ({ x, m: run.y[row][k] })), p.sx, p.sy, look, 1.2);
        }
      }
      const every = Math.max(1, Math.ceil(s.points.length / 5));
      s.points.forEach((q, k) => {
        if (k % every === Math.floor(every / 2)) mark(inside, look.shape, p.sx(q.x), p.sy(q.m), 3.2, look.colour);
      });
    }
    if (limit !== null) {
      element("line", {
        x1: p.edge.left, x2: p.edge.right, y1: p.sy(limit), y2: p.sy(limit), class: "limit",
      }, p.svg);
      element("text", {
        x: p.edge.right - 2, y: p.sy(limit) - 5, "text-anchor": "end", class: "limit-text",
      }, p.svg, `limit ${short(limit)}`);
    }
    reader(p, lines);
  }

  // A cross-hair with values, for the mouse and for the arrow keys.
  function reader(p, lines) {
    const xs = unique(lines.flatMap((s) => s.points.map((q) => q.x))).sort((a, b) => a - b);
    const cross = element("line", { y1: p.edge.top, y2: p.edge.bottom, class: "cross", visibility: "hidden" }, p.svg);
    const tip = html("div", { className: "tip", hidden: true }, p.box);
    tip.setAttribute("role", "status");
    let place = -1;
    function show(index) {
      place = Math.min(xs.length - 1, Math.max(0, index));
      const x = xs[place];
      cross.setAttribute("x1", p.sx(x));
      cross.setAttribute("x2", p.sx(x));
      cross.setAttribute("visibility", "visible");
      tip.replaceChildren();
      html("div", { textContent: `${short(x)} steps` }, tip);
      for (const s of lines) {
        const near = s.points.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a));
        const row = html("div", { textContent: `${s.label}: ${near.m.toFixed(2)} ± ${near.spread.toFixed(2)}` }, tip);
        row.style.color = style(s.index).colour;
      }
      tip.hidden = false;
      const scale = p.svg.getBoundingClientRect().width / p.width;
      const at = p.sx(x) * scale;
      const right = at > (p.width * scale) / 2;
      tip.style.top = "2.2rem";
      tip.style.left = right ? "" : `${at + 18}px`;
      tip.style.right = right ? `${p.width * scale - at + 18}px` : "";
    }
    function hide() {
      tip.hidden = true;
      cross.setAttribute("visibility", "hidden");
    }
    p.svg.setAttribute("tabindex", "0");
    p.svg.addEventListener("pointermove", (event) => {
      const box = p.svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * p.width;
      let best = 0;
      xs.forEach((v, i) => { if (Math.abs(p.sx(v) - x) < Math.abs(p.sx(xs[best]) - x)) best = i; });
      show(best);
    });
    p.svg.addEventListener("pointerleave", hide);
    p.svg.addEventListener("blur", hide);
    p.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      show(place < 0 ? xs.length - 1 : place + step);
    });
  }

  // Reward against cost

  function scatterChart(parent, series, i, name, limit) {
    const all = series.flatMap((s) => s.runs);
    const xs = all.map((run) => run.mean[1 + i]);
    if (limit !== null) xs.push(limit);
    xs.push(0);
    const say = `Reward against cost ${name}. ` + series.map((s) =>
      `${s.label}: reward ${short(mean(s.runs.map((r) => r.mean[0])))}, cost ${short(mean(s.runs.map((r) => r.mean[1 + i])))}`).join("; ");
    const p = panel(parent, `reward against cost: ${name}`, {
      x: range(xs), y: range(all.map((run) => run.mean[0]), 0.12), xlabel: `cost: ${name}`, say,
    });
    if (limit !== null) {
      element("rect", {
        x: p.edge.left, y: p.edge.top, width: Math.max(0, p.sx(limit) - p.edge.left),
        height: p.edge.bottom - p.edge.top, class: "shade",
      }, p.back);
      element("line", { x1: p.sx(limit), x2: p.sx(limit), y1: p.edge.top, y2: p.edge.bottom, class: "limit" }, p.svg);
      element("text", { x: p.sx(limit) + 4, y: p.edge.top + 11, class: "limit-text" }, p.svg, `limit ${short(limit)}`);
    }
    for (const s of series) {
      const look = style(s.index);
      for (const run of s.runs) mark(p.svg, look.shape, p.sx(run.mean[1 + i]), p.sy(run.mean[0]), 3, look.colour, true);
      const x = mean(s.runs.map((r) => r.mean[1 + i]));
      const y = mean(s.runs.map((r) => r.mean[0]));
      mark(p.svg, look.shape, p.sx(x), p.sy(y), 6, look.colour);
    }
  }

  // The score of every competitor, with its interval

  function scoreChart(parent, family) {
    const rows = family.rows;
    const left = 112;
    const say = `Score within the limits, ${family.title}. ` + rows.map((r) => `${r.name}: ${r.value.toFixed(2)}`
      + (r.low === null ? "" : `, between ${r.low.toFixed(2)} and ${r.high.toFixed(2)}`)).join("; ");
    const p = panel(parent, `${family.title}: score within the limits (1 is the best known)`, {
      x: [0, 1.06], y: [0, rows.length], rows: true, left, say,
      xlabel: "mean over tasks and limits, 95 % interval", height: 54 + 26 * rows.length,
    });
    rows.forEach((r, i) => {
      const look = style(Math.max(0, DATA.order.indexOf(r.name)));
      const y = p.sy(rows.length - i - 0.5);
      const few = r.blocks < family.count ? ` (${r.blocks} of ${family.count})` : "";
      const text = element("text", { x: left - 8, y: y + 4, "text-anchor": "end", class: i ? "" : "first" }, p.svg, r.name + few);
      fit(text, left - 12);
      element("line", { x1: p.sx(0), x2: p.sx(r.value), y1: y, y2: y, stroke: look.colour, "stroke-width": 9, opacity: 0.3 }, p.svg);
      if (r.low !== null) {
        element("line", { x1: p.sx(r.low), x2: p.sx(r.high), y1: y, y2: y, stroke: look.colour, "stroke-width": 2.5 }, p.svg);
        for (const x of [r.low, r.high]) {
          element("line", { x1: p.sx(x), x2: p.sx(x), y1: y - 5, y2: y + 5, stroke: look.colour, "stroke-width": 2.5 }, p.svg);
        }
      }
      mark(p.svg, look.shape, p.sx(r.value), y, 5, look.colour);
    });
  }

  function fit(text, width) {
    if (text.getComputedTextLength() <= width) return;
    text.setAttribute("textLength", width);
    text.setAttribute("lengthAdjust", "spacingAndGlyphs");
  }

  // Excess: one row per algorithm

  function rowsChart(parent, series, title, value, xlabel) {
    const values = series.flatMap((s) => s.runs.map(value));
    const most = Math.max(...values, 1e-6);
    const left = Math.min(150, 24 + 6.6 * Math.max(...series.map((s) => s.label.length)));
    const say = `${title}. ` + series.map((s) =>
      `${s.label}: ${short(mean(s.runs.map(value)))}`).join("; ");
    const p = panel(parent, title, {
      x: [0, most * 1.08], y: [0, series.length], rows: true, left, xlabel, say,
      height: 54 + 26 * series.length,
    });
    series.forEach((s, row) => {
      const look = style(s.index);
      const y = p.sy(series.length - row - 0.5);
      const m = mean(s.runs.map(value));
      fit(element("text", { x: p.edge.left - 8, y: y + 4, "text-anchor": "end" }, p.svg, s.label), left - 12);
      element("line", { x1: p.sx(0), x2: p.sx(m), y1: y, y2: y, stroke: look.colour, "stroke-width": 5, opacity: 0.35 }, p.svg);
      for (const run of s.runs) mark(p.svg, look.shape, p.sx(value(run)), y, 3, look.colour, true);
      mark(p.svg, look.shape, p.sx(m), y, 5, look.colour);
    });
  }

  // Controls

  const state = { section: "", task: "", mode: "mean", off: new Set(), seedsOff: new Set() };

  function options(select, entries, chosen) {
    select.replaceChildren();
    for (const [value, text] of entries) html("option", { value, textContent: text }, select);
    select.value = chosen;
  }

  function armsHere() {
    return DATA.arms.filter((a) => a.section === state.section && a.task === state.task);
  }

  // Algorithms keep their colour wherever they appear; variants are counted instead.
  function indexed(arms) {
    const names = unique(arms.map((a) => a.name));
    const many = names.length < arms.length;
    return arms.map((a, i) => ({ ...a, index: many ? i : Math.max(0, DATA.order.indexOf(a.name)) }));
  }

  // How a line of this number is drawn.
  function sample(parent, index) {
    const svg = element("svg", { width: 30, height: 12, "aria-hidden": "true" }, parent);
    const look = style(index);
    element("line", { x1: 0, x2: 30, y1: 6, y2: 6, stroke: look.colour, "stroke-width": 2, "stroke-dasharray": look.dash }, svg);
    mark(svg, look.shape, 15, 6, 3.4, look.colour);
  }

  function legend(parent, series) {
    parent.replaceChildren();
    for (const s of series) {
      const entry = html("li", {}, parent);
      sample(entry, s.index);
      entry.appendChild(document.createTextNode(s.label));
    }
  }

  function boxes(parent, entries, off) {
    parent.replaceChildren();
    for (const [key, text, index] of entries) {
      const label = html("label", {}, parent);
      const box = html("input", { type: "checkbox", checked: !off.has(key) }, label);
      box.addEventListener("change", () => {
        if (box.checked) off.delete(key); else off.add(key);
        draw();
      });
      if (index !== null) sample(label, index);
      label.appendChild(document.createTextNode(text));
    }
  }

  function controls() {
    const sections = unique(DATA.arms.map((a) => a.section));
    if (!sections.includes(state.section)) state.section = sections[0];
    options(byId("section"), sections.map((s) => [s, DATA.sections[s] || s]), state.section);
    const tasks = unique(DATA.arms.filter((a) => a.section === state.section).map((a) => a.task));
    if (!tasks.includes(state.task)) state.task = tasks[0];
    options(byId("task"), tasks.map((t) => [t, t]), state.task);
    const arms = indexed(armsHere());
    boxes(byId("arms"), arms.map((a) => [a.label, a.label, a.index]), state.off);
    const seeds = unique(arms.flatMap((a) => a.runs.map((r) => r.seed))).sort((a, b) => a - b);
    boxes(byId("seeds"), seeds.map((s) => [s, String(s), null]), state.seedsOff);
  }

  function draw() {
    const series = indexed(armsHere())
      .filter((a) => !state.off.has(a.label))
      .map((a) => ({ ...a, runs: a.runs.filter((r) => !state.seedsOff.has(r.seed)) }))
      .filter((a) => a.runs.length);
    const places = ["curves", "scatter", "violations"].map(byId);
    for (const place of places) place.replaceChildren();
    if (!series.length) {
      for (const id of ["curves-keys", "scatter-keys"]) byId(id).replaceChildren();
      for (const place of places) html("p", { className: "empty", textContent: "Nothing is chosen: tick an algorithm and a seed." }, place);
      return;
    }
    const first = series[0];
    // What sees no cost is far from all others and would squeeze them.
    const judged = series.length > 1 ? series.filter((s) => s.name !== DATA.reference) : series;
    const limit = (i) => {
      const found = unique(series.map((s) => s.limits[i]));
      return found.length === 1 ? found[0] : null;
    };
    // All boxes before the first chart: their number decides how wide each is.
    const charts = [];
    const add = (id, chart) => {
      const box = html("div", { className: "chart" }, byId(id));
      charts.push(() => chart(box));
    };
    add("curves", (box) => curveChart(box, series, 0, "episodic reward", null, state.mode));
    first.costs.forEach((name, i) => {
      add("curves", (box) => curveChart(box, series, 1 + i, `episodic cost: ${name}`, limit(i), state.mode));
      add("scatter", (box) => scatterChart(box, judged, i, name, limit(i)));
      add("violations", (box) => rowsChart(box, judged, `excess over the limit: ${name}`, (r) => r.excess[i], "in units of the cost"));
    });
    charts.forEach((chart) => chart());
    legend(byId("curves-keys"), series);
    legend(byId("scatter-keys"), judged);
  }

  function scores() {
    const place = byId("overall");
    if (!place) return;
    place.replaceChildren();
    const boxes = DATA.families.map(() => html("div", { className: "chart" }, place));
    boxes.forEach((box, i) => scoreChart(box, DATA.families[i]));
  }

  function refresh() {
    controls();
    draw();
  }

  function theme(name) {
    document.documentElement.dataset.theme = name;
    byId("theme").textContent = name === "dark" ? "Light" : "Dark";
    scores();
    if (DATA.arms.length) refresh();
  }

  byId("theme").addEventListener("click", () => theme(dark() ? "light" : "dark"));
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", () => theme(system.matches ? "dark" : "light"));
  theme(system.matches ? "dark" : "light");
  if (!DATA.arms.length) return;

  byId("section").addEventListener("change", (e) => {
    state.section = e.target.value;
    state.off.clear();
    refresh();
  });
  byId("task").addEventListener("change", (e) => { state.task = e.target.value; refresh(); });
  byId("mode").addEventListener("change", (e) => { state.mode = e.target.value; draw(); });
  byId("all").addEventListener("click", () => { state.off.clear(); refresh(); });
  byId("none").addEventListener("click", () => {
    armsHere().forEach((a) => state.off.add(a.label));
    refresh();
  });
  document.querySelector(".controls").addEventListener("submit", (e) => e.preventDefault());
  let waiting = 0;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => { scores(); draw(); }, 150);
  });
})();
