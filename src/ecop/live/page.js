"use strict";
(() => {
  const EVERY = 2000; // ms between two looks
  const NS = "http://www.w3.org/2000/svg";
  const WIDTH = 400, HEIGHT = 240;
  const EDGE = { left: 52, right: WIDTH - 18, top: 10, bottom: HEIGHT - 34 };
  const byId = (id) => document.getElementById(id);
  let seen = "";
  let clip = 0;

  function svg(name, attributes, parent, text = null) {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== null) made.textContent = text;
    parent.appendChild(made);
    return made;
  }

  function html(name, properties, parent) {
    const made = Object.assign(document.createElement(name), properties);
    parent.appendChild(made);
    return made;
  }

  const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
  const last = (list) => list[list.length - 1];
  const means = (curves) => curves[0].map((_, i) => mean(curves.map((c) => c[i])));

  function short(value) {
    const size = Math.abs(value);
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
    return String(+value.toPrecision(size >= 100 ? 4 : 3));
  }

  function clock(seconds) {
    const s = Math.round(seconds);
    const parts = [Math.floor(s / 3600), Math.floor(s / 60) % 60, s % 60];
    const words = parts.map((part) => String(part).padStart(2, "0")).join(":");
    return words.replace(/^00:/, "");
  }

  function ticks(low, high, count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough);
    const found = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) {
      found.push(Math.abs(v) < step * 1e-6 ? 0 : v);
    }
    return found;
  }

  // groups: [{ name, curves: one per seed }], limit: a number or null
  function chart(title, x, groups, limit) {
    const box = html("div", { className: "chart" }, byId("charts"));
    html("h2", { textContent: title }, box);
    const values = groups.flatMap((group) => group.curves.flat());
    if (limit !== null) values.push(limit);
    let low = values.reduce((a, b) => Math.min(a, b));
    let high = values.reduce((a, b) => Math.max(a, b));
    if (low === high) [low, high] = [low - 0.5, high + 0.5];
    [low, high] = [low - 0.06 * (high - low), high + 0.06 * (high - low)];
    const start = x[0], end = x.length > 1 ? last(x) : x[0] + 1;
    const sx = (v) => EDGE.left + ((v - start) / (end - start)) * (EDGE.right - EDGE.left);
    const sy = (v) => EDGE.bottom - ((v - low) / (high - low)) * (EDGE.bottom - EDGE.top);
    const now = groups.map((g) => `${g.name} ${short(last(means(g.curves)))}`).join(", ");
    const picture = svg("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: now ${now}`,
    }, box);
    for (const v of ticks(start, end, 5)) {
      svg("line", { x1: sx(v), x2: sx(v), y1: EDGE.top, y2: EDGE.bottom, class: "grid" }, picture);
      svg("text", { x: sx(v), y: EDGE.bottom + 15, "text-anchor": "middle" }, picture, short(v));
    }
    for (const v of ticks(low, high, 5)) {
      svg("line", { x1: EDGE.left, x2: EDGE.right, y1: sy(v), y2: sy(v), class: "grid" }, picture);
      svg("text", { x: EDGE.left - 6, y: sy(v) + 4, "text-anchor": "end" }, picture, short(v));
    }
    svg("path", { d: `M${EDGE.left},${EDGE.top}V${EDGE.bottom}H${EDGE.right}`, class: "axis" }, picture);
    svg("text", { x: (EDGE.left + EDGE.right) / 2, y: HEIGHT - 4, "text-anchor": "middle" },
      picture, "iteration");
    const line = (curve) => curve.map((v, i) =>
      `${i ? "L" : "M"}${sx(x[i]).toFixed(1)},${sy(v).toFixed(1)}`).join("");
    groups.forEach((group, k) => {
      const colour = `k${k % 4}`;
      if (group.curves.length > 1) {
        for (const curve of group.curves) {
          svg("path", { d: line(curve), class: `seed ${colour}` }, picture);
        }
      }
      svg("path", { d: line(means(group.curves)), class: `mean ${colour}` }, picture);
      if (groups.length > 1) {
        svg("text", { x: EDGE.left + 8, y: EDGE.top + 14 + 15 * k, class: `name ${colour}` },
          picture, group.name);
      }
    });
    if (limit !== null) {
      svg("line", { x1: EDGE.left, x2: EDGE.right, y1: sy(limit), y2: sy(limit), class: "limit" }, picture);
      svg("text", { x: EDGE.right - 4, y: sy(limit) - 5, "text-anchor": "end", class: "limit-text" },
        picture, `limit ${short(limit)}`);
    }
  }

  function tile(name, value, kind = "") {
    const item = html("li", { className: kind }, byId("tiles"));
    html("strong", { textContent: value }, item);
    item.append(name);
  }

  function tell(text) {
    byId("notes").textContent = text;
    byId("notes").hidden = !text;
  }

  const costName = (data, i) => data.costs[i] || `cost ${i + 1}`;

  function tiles(data) {
    byId("tiles").replaceChildren();
    if (!data.x.length) return;
    tile("iteration", short(data.iteration));
    tile("reward", short(last(means(data.reward))));
    data.costs_by_seed.forEach((curves, i) => {
      const now = last(means(curves));
      const limit = data.limits[i];
      if (limit === null) tile(costName(data, i), short(now));
      else tile(`${costName(data, i)}, limit ${short(limit)}`, short(now), now <= limit ? "good" : "bad");
    });
    tile("steps of each seed", short(data.steps));
    tile("trained", clock(data.seconds));
    tile("last iteration", data.age < 5 ? "now" : `${clock(data.age)} ago`);
  }

  function charts(data) {
    byId("charts").replaceChildren();
    if (!data.x.length) return;
    const words = `mean of ${data.seeds.length} seed${data.seeds.length > 1 ? "s" : ""}`;
    chart(`reward of an episode, ${words}`, data.x, [{ name: "reward", curves: data.reward }], null);
    data.costs_by_seed.forEach((curves, i) => {
      const name = costName(data, i);
      chart(`cost of an episode: ${name}`, data.x, [{ name, curves }], data.limits[i]);
    });
    const prices = data.multipliers.map((curves, i) => ({ name: costName(data, i), curves }));
    if (prices.length) chart("multipliers", data.x, prices, null);
  }

  function picture(data) {
    byId("caption").textContent = data.clip.note || `iteration ${data.clip.iteration}, first seed`;
    if (!data.clip.iteration || data.clip.iteration === clip) return;
    clip = data.clip.iteration;
    byId("clip").src = `clip.gif?${clip}`;
    byId("clip").hidden = false;
  }

  async function look() {
    try {
      const answer = await fetch("data.json");
      if (!answer.ok) throw new Error(await answer.text());
      const data = await answer.json();
      document.title = byId("title").textContent = data.title;
      byId("folder").textContent = data.folder;
      tell(data.x.length ? "" : "No iteration is finished yet.");
      tiles(data);
      const key = JSON.stringify([data.iteration, data.x.length, data.limits]);
      if (key !== seen) charts(data);
      seen = key;
      picture(data);
    } catch (error) {
      const gone = error instanceof TypeError;
      tell(gone ? "The page's server has ended; start 'ecop watch' again." : error.message);
    }
    setTimeout(look, EVERY);
  }

  look();
})();
