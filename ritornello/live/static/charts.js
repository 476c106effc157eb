// Charts of curves: uPlot with this page's colours, and a legend with the values below.

import { el, short } from "./dom.js";

/* global uPlot */

let palette = ["#0072B2"];
const DASHES = [[], [8, 4], [2, 4], [8, 4, 2, 4]];
const charts = new Set();

export function setPalette(colours) {
  palette = colours;
}

function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The look of the n-th curve: colours first, then the same colours in another dash. */
function look(index) {
  const colours = [...palette];
  if (isDark()) {
    // Dark blue and black are hard to see on black: light blue comes first, and white takes the place of black.
    [colours[0], colours[5]] = [colours[5], "#3B9BE0"];
    colours[6] = "#FFFFFF";
  }
  return { colour: colours[index % colours.length], dash: DASHES[Math.floor(index / colours.length) % DASHES.length] };
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axisText(value, name) {
  if (name === "minutes") return value >= 600 ? `${+(value / 60).toFixed(1)} h` : `${+value.toFixed(2)}`;
  return short(value);
}

/** A panel with curves. series: [{label, values}], all over the same x. */
export class Panel {
  constructor({ title, unit = "", about = "", height = 190, onclose = null }) {
    this.title = title;
    this.height = height;
    this.plot = null;
    this.shape = "";
    this.isZoomed = false;
    this.place = el("div.plot", { role: "img" });
    this.legend = el("div.legend");
    const close = onclose && el("button.quiet.small", { type: "button", onclick: onclose, "aria-label": `Remove the chart ${title}` }, "×");
    this.heading = el("h3", { title: about || null }, title);
    this.node = el("section.panel", {}, el("div.panel-head", {}, this.heading, el("span.muted", {}, unit), close), this.place, this.legend);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.place);
    charts.add(this);
  }

  rename(title) {
    this.title = this.heading.textContent = title;
  }

  /** Show curves over x; `axis` is "steps" or "minutes". */
  show(x, series, axis) {
    this.last = [x, series, axis];
    const known = series.filter((one) => one.values.some((value) => value !== null && value !== undefined));
    this.place.classList.toggle("empty", !known.length);
    const shape = JSON.stringify([axis, isDark(), known.map((one) => one.label)]);
    const data = [x, ...known.map((one) => one.values)];
    if (this.plot && shape === this.shape) this.plot.setData(data, !this.isZoomed);
    else {
      if (this.plot) this.plot.destroy();
      this.plot = null;  // until its legend is there too
      this.shape = shape;
      this.isZoomed = false;
      const plot = known.length ? new uPlot(this.options(known, axis), data, this.place) : null;
      this.makeLegend(known);
      this.plot = plot;
    }
    this.values(null);
    const words = known.map((one, number) => `${one.label} now ${this.numbers[number].textContent}`).join("; ");
    this.place.setAttribute("aria-label", `${this.title}: ${words || "nothing measured yet"}`);
  }

  options(known, axis) {
    const grid = { stroke: css("--grid"), width: 1 };
    const text = { stroke: css("--muted"), font: "12px system-ui, sans-serif", ticks: { show: false }, grid };
    return {
      width: Math.max(200, this.place.clientWidth), height: this.height,
      series: [{}, ...known.map((one, index) => {
        const { colour, dash } = look(index);
        const points = { show: (u) => u.data[0].length < 30, size: 5, fill: colour };
        return { label: one.label, stroke: colour, dash, width: 2, spanGaps: true, points };
      })],
      legend: { show: false },
      padding: [10, 12, 0, 0],
      cursor: { y: false, points: { size: 7 }, drag: { x: true, y: false, dist: 6 }, sync: { key: "run", setSeries: false } },
      scales: { x: { time: false }, y: { range: (u, low, high) => padded(low, high) } },
      axes: [
        { ...text, size: 28, space: 70, values: (u, ticks) => ticks.map((tick) => axisText(tick, axis)) },
        { ...text, size: 52, space: 34, values: (u, ticks) => ticks.map(short) },
      ],
      hooks: {
        setCursor: [(u) => this.values(u.cursor.idx)],
        setScale: [(u, key) => {
          if (key !== "x" || !u.data[0].length) return;
          const { min, max } = u.scales.x, all = u.data[0];
          this.isZoomed = min > all[0] || max < all[all.length - 1];
        }],
      },
    };
  }

  makeLegend(known) {
    this.numbers = known.map(() => el("b"));
    this.legend.replaceChildren(...known.map((one, index) => {
      const swatch = el("i");
      const { colour, dash } = look(index);
      swatch.style.borderTopColor = colour;
      swatch.style.borderTopStyle = dash.length ? "dashed" : "solid";
      return el("span", {}, swatch, `${one.label} `, this.numbers[index]);
    }));
  }

  /** Write the values at a row beside the names; at the end of the curves without one. */
  values(row) {
    if (!this.plot || !this.numbers) return;
    this.numbers.forEach((place, number) => {
      const values = this.plot.data[number + 1];
      let at = row ?? values.length - 1;
      while (at > 0 && (values[at] === null || values[at] === undefined)) at -= 1;
      place.textContent = short(values[at]);
    });
  }

  resize() {
    if (this.plot && this.place.clientWidth && Math.abs(this.plot.width - this.place.clientWidth) > 1) {
      this.plot.setSize({ width: this.place.clientWidth, height: this.height });
    }
  }

  redraw() {
    if (this.last) this.show(...this.last);
  }

  remove() {
    this.observer.disconnect();
    if (this.plot) this.plot.destroy();
    charts.delete(this);
    this.node.remove();
  }
}

function padded(low, high) {
  if (low === null || high === null || low === undefined) return [0, 1];
  const room = high > low ? 0.06 * (high - low) : 0.1 * Math.abs(high) || 1;
  return [low - room, high + room];
}

export function removeAll() {
  for (const panel of [...charts]) panel.remove();
}

export function redrawAll() {
  for (const panel of charts) panel.redraw();
}
