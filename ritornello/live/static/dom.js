// Elements and numbers. Text from files only ever becomes text: nothing here takes HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: el("a.name", {href}, child, "text", ...). `on...` are listeners. */
export function el(what, facts = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  fill(node, facts, children);
  return node;
}

export function svg(tag, facts = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  fill(node, facts, children);
  return node;
}

function fill(node, facts, children) {
  for (const [name, value] of Object.entries(facts)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

/** Put children into a node in place of what is there. */
export function put(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

const UNITS = [[1e9, "G"], [1e6, "M"], [1e4, "k"]];

/** About three digits, as the terminal shows them: 0.0123, 4.56, 123, 12.3k, 4.56M. */
export function short(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [limit, unit] of UNITS) {
    if (size >= limit) {
      const scaled = value / (unit === "k" ? 1e3 : limit);
      return scaled.toFixed(decimals(scaled)) + unit;
    }
  }
  if (Number.isInteger(value) || size >= 100) return value.toFixed(0);
  if (size >= 1) return value.toFixed(decimals(value));
  return size >= 0.01 ? value.toFixed(3) : value.toExponential(1);
}

function decimals(value) {
  const size = Math.abs(value);
  return size >= 100 ? 0 : size >= 10 ? 1 : 2;
}

export function percent(share) {
  return typeof share === "number" ? `${Math.round(100 * share)} %` : "–";
}

/** Seconds as "2 h 05 min", "12 min", "40 s". */
export function duration(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 90) return `${whole} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

let aheadS = 0;  // of this machine's clock, the server's

/** Take over the clock of the server (unix seconds): files have its times, and this machine may have others. */
export function setNow(seconds) {
  aheadS = seconds - Date.now() / 1000;
}

/** What time it is by the clock of the server, in unix seconds. */
export function now() {
  return Date.now() / 1000 + aheadS;
}

/** How long ago a moment (unix seconds) was, in words. */
export function ago(moment) {
  if (typeof moment !== "number" || !moment) return "–";
  const seconds = now() - moment;
  return seconds < 5 ? "now" : `${duration(seconds)} ago`;
}

export const STATES = {
  starting: "starting", filling: "filling replay", training: "training", paused: "paused", saving: "saving",
  ended: "ended", failed: "failed", stopped: "stopped",
};

const ENDS = { steps: "finished", return: "reached its return", seconds: "time is up", interrupted: "interrupted" };

/** A state as a dot of a form of its own and a word: the colour is never all that tells it. */
export function badge(state, reason) {
  const known = STATES[state] ? state : "stopped";
  return el(`span.badge.${known}`, {}, (known === "ended" && ENDS[reason]) || STATES[known]);
}

/** A bar that is so full. */
export function bar(share, label) {
  const full = typeof share === "number" ? Math.min(1, Math.max(0, share)) : 0;
  return el("progress", { max: 1, value: full, "aria-label": label });
}

/** A small curve of [x, y] points, without axes. */
export function sparkline(points, label) {
  const width = 120, height = 28, pad = 2;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "spark", role: "img", "aria-label": label });
  if (points.length < 2) return picture;
  const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const place = ([x, y]) => [
    pad + (width - 2 * pad) * (x1 > x0 ? (x - x0) / (x1 - x0) : 0.5),
    height - pad - (height - 2 * pad) * (y1 > y0 ? (y - y0) / (y1 - y0) : 0.5),
  ];
  const path = points.map(place).map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const [x, y] = place(points[points.length - 1]);
  picture.append(svg("polyline", { points: path }), svg("circle", { cx: x, cy: y, r: 2 }));
  return picture;
}

/** A table from headings and rows of cells; a cell is text or an element. */
export function table(caption, headings, rows, numeric = []) {
  const kind = (index) => (numeric.includes(index) ? "td.number" : "td");
  return el("div.scroll", { tabindex: "0", role: "region", "aria-label": caption },
    el("table", {},
      el("caption.hidden", {}, caption),
      el("thead", {}, el("tr", {}, headings.map((text, index) => el(numeric.includes(index) ? "th.number" : "th", { scope: "col" }, text)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, index) => el(kind(index), {}, cell ?? "–")))))));
}

/** A choice of one of a few, as buttons beside each other that the arrow keys move between. */
export function choice(name, label, options, chosen, onchoose) {
  return el("fieldset.choice", {}, el("legend.hidden", {}, label), options.map(([value, text]) => el("label", {},
    el("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onchoose(value) }), el("span", {}, text))));
}
