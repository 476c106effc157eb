// The page's own code in jsdom: a document, and a server that answers what a test says.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

/** The folder in which the page's modules are, given by the test that starts this. */
export const PAGE = process.argv[2];

// `require` looks in NODE_PATH too.
const { JSDOM } = createRequire(import.meta.url)("jsdom");
const html = fs.readFileSync(path.join(PAGE, "index.html"), "utf8").replace(/<script[^>]*><\/script>|<link[^>]*>/g, "");
const { window } = new JSDOM(html, { url: "http://127.0.0.1:1/run?run=a", pretendToBeVisual: true });

for (const name of ["document", "location", "history", "getComputedStyle", "Event"]) globalThis[name] = window[name];
globalThis.addEventListener = (type, listener) => window.addEventListener(type, listener);
globalThis.scrollTo = () => {};
globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
export const observers = new Set();  // of charts that were not removed
globalThis.ResizeObserver = class {
  observe() { observers.add(this); }
  disconnect() { observers.delete(this); }
};
globalThis.uPlot = class {
  constructor(options, data) { this.options = options; this.data = data; this.cursor = {}; }
  setData(data) { this.data = data; }
  setSize() {}
  destroy() {}
};

export const timers = [];  // [what, after how long in ms], of those that a page waits for
const realTimeout = globalThis.setTimeout;
globalThis.setTimeout = (what, after, ...more) => (after >= 500 ? timers.push([what, after]) : realTimeout(what, after, ...more));
globalThis.setInterval = () => 0;
globalThis.clearTimeout = () => {};

let isHidden = false;
Object.defineProperty(document, "hidden", { get: () => isHidden, configurable: true });
export function hide(hidden) {
  isHidden = hidden;
  document.dispatchEvent(new Event("visibilitychange"));
}

export const answers = {};  // by path: data, {status, body}, or a function that returns one of them
export const asked = [];
globalThis.fetch = async (address, options) => {
  const url = new URL(address, "http://127.0.0.1:1");
  asked.push(url);
  const said = answers[url.pathname];
  const got = typeof said === "function" ? await said(url, options) : said;
  if (got === undefined) throw new TypeError("Failed to fetch");
  const status = typeof got.status === "number" ? got.status : 200;
  return { ok: status < 400, status, text: async () => JSON.stringify(got.body ?? got) };
};

/** Let the page ask again now. */
export async function again() {
  for (const [what] of timers.splice(0)) what();
  await settle();
}

/** Let everything happen that waits for nothing but its turn. */
export async function settle() {
  for (let turn = 0; turn < 30; turn += 1) await new Promise((done) => setImmediate(done));
}

export const nowS = () => Date.now() / 1000;

export const session = {
  settings: {}, charts: [{ title: "Policy loss", unit: "", metrics: ["loss/policy"] }], metrics: {}, results: "/r",
  colours: ["#000", "#111", "#222", "#333", "#444", "#555", "#666"], post: "t", silent_s: 60,
};

export const aboutRun = (more = {}) => ({
  run: "a", name: "a", group: "", games: "Pong", flags: { seed: 1 }, state: "training", agent_steps: 5, target_steps: 100, updates: 1,
  episodes: 1, minutes: 1, score: 1, best: 1, steps_per_second: 1, seconds_left: null, findings: [], changed: nowS(), curve: [],
  status: {}, summary: {}, evaluations: [], films: [], session: { count: 1 },
  names: ["episode/return_mean", "loss/policy", "loss/value", "lag/mean"], newest: {}, log: [], waiting: 0, now: nowS(), ...more,
});
export const inList = (run, more = {}) => aboutRun({ run, name: run, findings: 0, ...more });

const COUNT = 40;
/** What the server says to a question for rows. */
export function rowsFor(url) {
  const names = url.searchParams.get("names").split(",").filter(Boolean), numbers = [...Array(COUNT).keys()];
  return { steps: numbers, minutes: numbers, columns: Object.fromEntries(names.map((name) => [name, numbers.map(() => 1)])) };
}

export const page = async (name) => import(pathToFileURL(path.join(PAGE, name)).href);

const main = document.getElementById("main");
let leave = () => {};

/** Show a view in place of the one before, and wait until it has its answers. */
export async function show(view, more = {}) {
  leave();
  (await page("charts.js")).removeAll();
  leave = view({ main, crumbs: document.getElementById("crumbs"), session, query: new URLSearchParams("run=a"), go() {}, ...more });
  await settle();
}

export function fresh() {
  leave();
  leave = () => {};
  main.replaceChildren();
  if (isHidden) hide(false);
  for (const list of [timers, asked]) list.length = 0;
  for (const name of Object.keys(answers)) delete answers[name];
  Object.assign(answers, { "/api/session": session, "/api/run": () => aboutRun(), "/api/rows": rowsFor, "/api/runs": { runs: [], now: nowS() } });
}

export const one = (selector) => document.querySelector(selector);
export const all = (selector) => [...document.querySelectorAll(selector)];
export const text = (selector) => one(selector)?.textContent ?? "";
export function choose(node, value) {
  node.value = value;
  node.dispatchEvent(new Event("change"));
}
export const button = (label) => all("button").find((node) => node.textContent.startsWith(label));
