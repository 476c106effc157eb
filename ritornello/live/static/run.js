// One run: where it stands, its curves, and everything else that its files say.

import { ask, address, follow } from "./api.js";
import { Panel } from "./charts.js";
import { ControlPanel } from "./control.js";
import { ago, badge, bar, choice, duration, el, now, percent, put, short } from "./dom.js";
import { buffersOf, evaluationsOf, filmsOf, findingsOf, flagsOf, hardwareOf, sessionOf, workersOf } from "./parts.js";

const OF_GAMES = ["episode/return_mean_*", "evaluation/return_sampled_*"];
const MOST_NAMES = 300;  // that the server answers at once
let axis = "steps";

/** Whether a name fits a pattern in which `*` stands for anything. */
function fits(name, pattern) {
  const parts = pattern.split("*");
  return parts.length === 1 ? name === pattern
    : name.startsWith(parts[0]) && name.endsWith(parts[parts.length - 1]) && name.length >= pattern.length - 1;
}

export function showRun({ main, crumbs, session, query }) {
  const run = query.get("run") || "";
  const name = run.split("/").pop();
  document.title = name;
  put(crumbs, el("a", { href: "/" }, "Runs"), el("span", { "aria-hidden": "true" }, "/"), el("strong", {}, name));
  const head = el("div.head"), tiles = el("dl.tiles");
  const charts = el("div.charts"), big = el("div.big"), more = el("div.more");
  const side = { findings: el("section.card"), films: el("section.card"), evaluations: el("section.card"), buffers: el("section.card"),
    workers: el("section.card"), hardware: el("section.card"), log: el("section.card"), session: el("section.card"), flags: el("section.card") };
  const axes = choice("axis", "Curves over", [["steps", "by agent steps"], ["minutes", "by minutes"]], axis, (value) => { axis = value; drawCharts(); });
  const control = new ControlPanel(run, session);
  put(main, el("div.page", {}, head, tiles, control.node, side.findings,
    el("div.tools", {}, el("h2", {}, "Curves"), axes), big, charts, more,
    el("div.cards", {}, side.films, side.evaluations, side.buffers, side.workers, side.hardware, side.session),
    side.flags, side.log));

  let about = null, rows = null, several = false, ended = false;
  const panels = [];  // {panel, metrics: patterns}

  function makePanels() {
    const first = new Panel({ title: "Mean return", about: "Mean of the last games, not clipped", height: 280 });
    panels.push({ panel: first, metrics: ["episode/return_mean", "evaluation/return_*"] });
    big.append(first.node);
    for (const chart of session.charts) add(chart);
  }

  /** Show each of several games; that there are several is known once a game of each kind has ended. */
  function makePanelOfGames() {
    if (several || !metricsOf(OF_GAMES).length) return;
    several = true;
    panels[0].panel.rename("Score");
    panels[0].metrics = ["episode/score_mean", "evaluation/score"];  // on one scale
    const titles = ["Mean return of each game", "Evaluations of each game"];
    charts.prepend(...titles.map((title, number) => add({ title, metrics: [OF_GAMES[number]], unit: "points" }).node));
  }

  function add({ title, metrics, unit }, onclose = null) {
    const panel = new Panel({ title, unit, about: session.metrics[metrics[0]]?.doc, onclose });
    panels.push({ panel, metrics });
    charts.append(panel.node);
    return panel;
  }

  function metricsOf(patterns) {
    const known = about.names.length ? about.names : patterns.filter((pattern) => !pattern.includes("*"));
    return patterns.flatMap((pattern) => known.filter((metric) => fits(metric, pattern)));
  }

  const wanted = () => [...new Set(panels.flatMap(({ metrics }) => metricsOf(metrics)))].slice(0, MOST_NAMES);

  function drawCharts() {
    if (!rows) return;
    const x = rows[axis];
    for (const { panel, metrics } of panels) {
      const names = metricsOf(metrics);
      panel.show(x, names.map((metric) => ({ label: shortName(metric, names), values: rows.columns[metric] || [] })), axis);
      // A chart of what this run does not measure is in nobody's way.
      panel.node.hidden = !names.some((metric) => rows.columns[metric]) && panel.node.parentNode === charts;
    }
  }

  const pick = el("select", { id: "more-metrics", onblur: drawMore, onchange: () => {
    const metric = pick.value;
    if (!metric) return;
    const panel = add({ title: metric, metrics: [metric], unit: session.metrics[metric]?.unit || "" }, () => {
      panels.splice(panels.findIndex((each) => each.panel === panel), 1);
      panel.remove();
      drawMore();
      pick.focus();
    });
    loadRows();
  } });

  /** Offer the metrics that no chart shows; not while somebody chooses one, but right afterwards. */
  function drawMore() {
    const shown = new Set(panels.flatMap(({ metrics }) => metricsOf(metrics)));
    const others = about.names.filter((metric) => !shown.has(metric));
    const offered = others.join("\n");
    if (pick.isConnected && (pick.dataset.offered === offered || document.activeElement === pick)) return;
    pick.dataset.offered = offered;
    put(pick, el("option", { value: "" }, `choose one of ${others.length} ...`), others.map((metric) => el("option", { value: metric }, metric)));
    if (!pick.isConnected) {
      put(more, el("label", { for: pick.id }, "Another curve"), pick,
        el("a.button", { href: address("/compare", { run }) }, "As a figure"));
    }
  }

  function drawHead() {
    const share = about.target_steps ? (about.agent_steps ?? 0) / about.target_steps : null;
    const isOver = ["ended", "failed", "stopped"].includes(about.state);
    const silentS = now() - about.changed;
    const quiet = !isOver && silentS > session.silent_s;
    put(head,
      el("div.title", {}, el("h1", {}, about.games || name), badge(about.state, about.reason),
        quiet ? el("span.quiet-run", {}, `no sign for ${duration(silentS)}`) : null),
      el("p.muted.path", {}, run),
      el("div.headbar", {}, share === null ? null : bar(share, `${percent(share)} of the agent steps`),
        el("p", {}, `${short(about.agent_steps)}${about.target_steps ? ` of ${short(about.target_steps)} agent steps` : " agent steps"}`,
          share === null ? "" : ` · ${percent(share)}`,
          !isOver && about.seconds_left !== null ? ` · ${duration(about.seconds_left)} left` : "",
          ` · ${isOver ? "changed" : "last record"} ${ago(about.changed)}`)));
    const values = about.newest;
    const numbers = [
      ["mean return", about.score, "of the last games, not clipped"], ["best game", about.best],
      ["agent steps/s", about.steps_per_second], ["updates", about.updates], ["games", about.episodes],
      ["running time", about.minutes === null ? null : duration(60 * about.minutes)],
      ["learner waits", values["cache/wait_fraction"] === undefined ? null : percent(values["cache/wait_fraction"])],
      ["memory", values["system/memory_mb"] === undefined ? null : `${short(values["system/memory_mb"])} MB`],
    ];
    put(tiles, numbers.filter(([, value]) => value !== null && value !== undefined).map(([text, value, title]) =>
      el("div", { title: title || null }, el("dt", {}, text), el("dd", {}, typeof value === "number" ? short(value) : value))));
  }

  function drawParts() {
    section(side.findings, "Findings", findingsOf(about), about.findings.length > 0);
    section(side.films, "Newest film", filmsOf(about, run), about.films.length > 0);
    section(side.evaluations, "Evaluations", evaluationsOf(about), about.evaluations.length > 0);
    section(side.buffers, "Replay buffers", buffersOf(about));
    section(side.workers, "Workers", workersOf(about));
    section(side.hardware, "Machine", hardwareOf(about));
    section(side.session, "Session", sessionOf(about));
    section(side.flags, "Flags", flagsOf(about));
    section(side.log, "Log", about.log.length ? [el("pre.log", { tabindex: "0", "aria-label": "Last lines of train.log" }, about.log.join("\n"))] : null);
  }

  async function take(news) {
    about = news;
    if (!panels.length) makePanels();
    makePanelOfGames();
    drawHead();
    control.update(about);
    drawParts();
    drawMore();
    await loadRows();
  }

  async function loadRows() {
    const got = await ask("/api/rows", { run, names: wanted().join(",") });
    if (ended) return;
    rows = got;
    drawCharts();
  }

  const stop = follow("/api/run", { run }, 2, take);
  const timer = setInterval(() => about && drawHead(), 15000);
  return () => { ended = true; stop(); clearInterval(timer); };
}

/** Put a part below its heading; what is not there takes no room. What its reader did with it stays: open, scrolled. */
function section(place, title, content, isThere = true) {
  place.hidden = !content || !isThere;
  if (place.hidden) { put(place); return; }
  const text = content.map((node) => node?.outerHTML ?? "").join("");
  if (place.dataset.shown === text) return;  // a film that plays goes on playing
  place.dataset.shown = text;
  const open = [...place.querySelectorAll("details")].map((node) => node.open);
  const scrolled = [...place.querySelectorAll("pre, .scroll")].map((node) => [node.scrollLeft, node.scrollTop]);
  put(place, el("h2", {}, title), ...content);
  place.querySelectorAll("details").forEach((node, index) => { node.open = open[index] ?? node.open; });
  place.querySelectorAll("pre, .scroll").forEach((node, index) => {
    [node.scrollLeft, node.scrollTop] = scrolled[index] ?? [0, node.matches("pre") ? node.scrollHeight : 0];
  });
}

/** Leave out what all names begin or end with: loss/policy and loss/value are policy and value. */
function shortName(metric, names) {
  const text = metric.replace(/^(replay)\/([^/]+)\/.*$/, "$2");
  if (text !== metric && new Set(names.map((each) => each.split("/")[1])).size === names.length) return text;
  const group = metric.slice(0, metric.indexOf("/") + 1);
  return names.every((each) => each.startsWith(group)) ? metric.slice(group.length).replaceAll("_", " ") : metric;
}
