// Charts of curves: uPlot with this page's colours, a legend below, and keys for those without a mouse.

import { el, short } from "./dom.js";

/* global uPlot */

let palette = ["#0072B2"];
const DASHES = [[], [8, 4], [2, 4], [8, 4, 2, 4]];
const charts = new Set();

export function setPalette(colours) {
  palette = colours;
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The look of the n-th curve: colours first, then the same colours in another dash. */
export function look(index) {
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

/**
 * A panel with curves. series: [{label, values, index, thin?, band?: [low, high]}], all over the same x.
 */
export class Panel {
  constructor({ title, unit = "", about = "", height = 190, sync = null, rank = 3, onclose = null }) {
    this.title = title;
    this.unit = unit;
    this.height = height;
    this.sync = sync;
    this.plot = null;
    this.shape = "";
    this.isZoomed = false;
    this.place = el("div.plot", { tabindex: "0", role: "img", onkeydown: (event) => this.key(event) });
    this.legend = el("div.legend");
    const close = onclose && el("button.quiet.small", { type: "button", onclick: onclose, "aria-label": `Remove the chart ${title}` }, "×");
    this.heading = el(`h${rank}`, { title: about || null }, title);
    this.node = el("section.panel", {},
      el("div.panel-head", {}, this.heading, el("span.muted", {}, unit), close),
      this.place, this.legend);
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
    this.place.setAttribute("aria-label", this.words(x, known, axis));
    const shape = JSON.stringify([axis, isDark(), known.map((one) => [one.label, one.index, !!one.band, !!one.thin])]);
    const data = [x];
    for (const one of known) {
      if (one.band) data.push(one.band[1], one.band[0]);
      data.push(one.values);
    }
    if (this.plot && shape === this.shape) {
      this.plot.setData(data, !this.isZoomed);
      this.values(null);
      return;
    }
    if (this.plot) this.plot.destroy();
    this.shape = shape;
    this.isZoomed = false;
    this.plot = known.length ? new uPlot(this.options(known, axis), data, this.place) : null;
    this.makeLegend(known);
  }

  options(known, axis) {
    const grid = { stroke: css("--grid"), width: 1 };
    const text = { stroke: css("--muted"), font: "12px system-ui, sans-serif", ticks: { show: false }, grid };
    const series = [{}], bands = [];
    this.at = [];
    for (const one of known) {
      const { colour, dash } = look(one.index);
      if (one.band) {
        series.push({ show: true, stroke: "transparent", width: 0, points: { show: false }, spanGaps: true });
        series.push({ show: true, stroke: "transparent", width: 0, points: { show: false }, spanGaps: true });
        bands.push({ series: [series.length - 2, series.length - 1], fill: `${colour}2B` });
      }
      this.at.push(series.length);
      series.push({
        label: one.label, stroke: one.thin ? `${colour}99` : colour, dash, width: one.thin ? 1 : 2,
        spanGaps: true, points: { show: (u) => u.data[0].length < 30, size: 5, fill: colour },
      });
    }
    return {
      width: Math.max(200, this.place.clientWidth), height: this.height, series, bands,
      legend: { show: false },
      padding: [10, 12, 0, 0],
      cursor: {
        y: false, points: { size: 7 }, drag: { x: true, y: false, dist: 6 },
        sync: this.sync ? { key: this.sync, setSeries: false } : undefined,
      },
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
    this.legend.replaceChildren(...known.filter((one) => !one.thin).map((one) => {
      const swatch = el("i");
      const { colour, dash } = look(one.index);
      swatch.style.borderTopColor = colour;
      swatch.style.borderTopStyle = dash.length ? "dashed" : "solid";
      return el("span", {}, swatch, `${one.label} `, this.numbers[known.indexOf(one)]);
    }));
    this.values(null);
  }

  /** Write the values at a row beside the names; at the end of the curves without one. */
  values(row) {
    if (!this.plot) return;
    this.at.forEach((column, number) => {
      const values = this.plot.data[column];
      let at = row ?? values.length - 1;
      while (at > 0 && (values[at] === null || values[at] === undefined)) at -= 1;
      this.numbers[number].textContent = short(values[at]);
    });
  }

  words(x, known, axis) {
    if (!known.length) return `${this.title}: nothing measured yet`;
    const ends = known.filter((one) => !one.thin).map((one) => {
      const values = one.values.filter((value) => value !== null && value !== undefined);
      return `${one.label} from ${short(values[0])} to ${short(values[values.length - 1])}`;
    });
    return `${this.title} over ${axis === "minutes" ? "minutes" : "agent steps"}: ${ends.join("; ")}. Arrow keys read values, Escape shows all.`;
  }

  key(event) {
    if (!this.plot) return;
    const x = this.plot.data[0], step = Math.max(1, Math.round(x.length / 100));
    const now = this.plot.cursor.idx ?? x.length - 1;
    const next = { ArrowLeft: now - step, ArrowRight: now + step, Home: 0, End: x.length - 1 }[event.key];
    if (event.key === "Escape") {
      this.plot.setScale("x", { min: x[0], max: x[x.length - 1] });
      this.plot.setCursor({ left: -10, top: -10 });
    } else if (next !== undefined) {
      const row = Math.min(x.length - 1, Math.max(0, next));
      this.plot.setCursor({ left: this.plot.valToPos(x[row], "x"), top: 10 });
    } else return;
    event.preventDefault();
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
  const room = high > low ? 0.06 * (high - low) : Math.max(1e-9, 0.1 * Math.abs(high)) || 1;
  return [low - room, high + room];
}

/** The values of a curve on another grid, straight between its points, null outside of them. */
export function resampled(grid, x, y) {
  let at = 0;
  return grid.map((position) => {
    if (!x.length || position < x[0] || position > x[x.length - 1]) return null;
    while (at < x.length - 2 && x[at + 1] < position) at += 1;
    if (x.length === 1 || x[at + 1] === x[at]) return y[at];
    return y[at] + (y[at + 1] - y[at]) * (position - x[at]) / (x[at + 1] - x[at]);
  });
}

export function removeAll() {
  for (const panel of [...charts]) panel.remove();
}

export function redrawAll() {
  for (const panel of charts) panel.redraw();
}
