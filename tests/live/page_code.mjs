// Tests of the page's code. test_page_code.py starts them and reads what they print: {name: problem or null}.

import assert from "node:assert/strict";
import * as world from "./page_code_world.mjs";

const { aboutRun, again, all, answers, asked, button, choose, hide, inList, nowS, one, rowsFor, settle, show, text } = world;
const { Panel } = await world.page("charts.js");
const { showRun } = await world.page("run.js");
const { showRuns } = await world.page("runs.js");
const { showComparison } = await world.page("compare.js");
const tests = {};
const test = (name, body) => { tests[name] = body; };
const titles = () => all(".panel-head").map((node) => node.firstChild.textContent);
const HOSTILE = "<img src=x onerror=alert(1)>";

test("a run is shown and followed, and what its files say is only text", async () => {
  answers["/api/run"] = () => aboutRun({
    log: [HOSTILE], findings: [{ name: "a", message: HOSTILE, advice: "--lr", agent_steps: 1 }], flags: { env: HOSTILE },
    status: { workers: [{ number: 0, doing: HOSTILE }], buffers: [{ name: "queue", kind: HOSTILE, items: 1, capacity: 2 }] },
    evaluations: [{ agent_steps: "1", game: HOSTILE, mean: "2.5" }], newest: { "system/cpu_percent": 5 },
  });
  await show(showRun);
  assert.deepEqual(titles(), ["Mean return", "Policy loss"]);
  assert.ok(text(".log").includes(HOSTILE));
  assert.equal(all("main img").length, 0);
  assert.equal(text(".badge"), "training");
  answers["/api/run"] = () => aboutRun({ state: "ended", reason: "seconds", score: 77 });
  await again();
  assert.equal(text(".badge"), "time is up");
  assert.ok(text(".tiles").includes("77"));
});

test("curves grow with the run", async () => {
  await show(showRun);
  answers["/api/rows"] = (url) => ({ ...rowsFor(url), steps: [0, 40], minutes: [0, 40], columns: { "episode/return_mean": [1, 9] } });
  await again();
  assert.match(one(".big .plot").getAttribute("aria-label"), /now 9/);
});

test("a curve that stays at zero has an axis of numbers that can be read", async () => {
  const panel = new Panel({ title: "Lost" });
  panel.show([0, 1], [{ label: "lost", values: [0, 0] }], "steps");
  const { range } = panel.plot.options.scales.y;
  assert.deepEqual([range(null, 0, 0), range(null, 10, 10)], [[-1, 1], [9, 11]]);
  panel.remove();
});

test("a chosen curve is drawn and can be taken away", async () => {
  await show(showRun);
  choose(one("#more-metrics"), "lag/mean");
  await settle();
  assert.equal(titles().at(-1), "lag/mean");
  button("×").click();
  assert.deepEqual(titles(), ["Mean return", "Policy loss"]);
  assert.ok(text("#more-metrics").includes("lag/mean"));
});

test("a run of several games has a curve for each", async () => {
  answers["/api/run"] = () => aboutRun({ names: ["episode/score_mean", "episode/return_mean_pong", "episode/return_mean_breakout"] });
  await show(showRun);
  assert.deepEqual(titles().slice(0, 2), ["Score", "Mean return of each game"]);
  assert.match(all(".plot")[1].getAttribute("aria-label"), /pong now 1.*breakout now 1/);
});

test("a run of all games that is evaluated has all its charts, and its score on a scale of its own", async () => {
  const games = [...Array(57).keys()];
  const ofGames = ["episode/return_mean", "evaluation/return_sampled", "evaluation/return_greedy"];
  const names = ["episode/score_mean", "evaluation/score", "loss/policy", ...ofGames.flatMap((name) => games.map((game) => `${name}_${game}`))];
  answers["/api/run"] = () => aboutRun({ names });
  await show(showRun);
  const shown = (number) => all(".plot")[number].getAttribute("aria-label");
  assert.deepEqual(titles(), ["Score", "Mean return of each game", "Evaluations of each game", "Policy loss"]);
  assert.match(shown(0), /^Score: episode\/score_mean now 1; evaluation\/score now 1$/);
  assert.equal(shown(2).split(" now 1").length, games.length + 1);
  assert.deepEqual(all(".panel").map((node) => node.hidden), [false, false, false, false]);
});

test("curves that could not be loaded are asked for again, also of a run that is over", async () => {
  const news = aboutRun({ state: "ended", seen: "one" });
  answers["/api/run"] = (url) => (url.searchParams.get("seen") === "one" ? { status: 204 } : news);
  answers["/api/rows"] = { status: 503, body: { error: "busy" } };
  await show(showRun);
  answers["/api/rows"] = rowsFor;
  await again();
  assert.match(one(".big .plot").getAttribute("aria-label"), /now 1/);
});

for (const ahead of [300, -300]) {
  test(`the clock of the browser does not matter: ${ahead} s`, async () => {
    answers["/api/run"] = () => aboutRun({ changed: nowS() - ahead - 100, now: nowS() - ahead });
    await show(showRun);
    assert.equal(text(".quiet-run"), "no sign for 2 min");
  });
}

const CONTROL = { commands: ["pause", "continue", "save", "stop", "set"], paused: false, acknowledged: [], settings: { lr_factor: 1 } };

test("commands are sent, stop asks once more, and a refusal stays", async () => {
  const sent = [];
  answers["/api/run"] = () => aboutRun({ status: { control: CONTROL } });
  answers["/api/control"] = (url, options) => { sent.push(JSON.parse(options.body)); return { status: 403, body: { error: "It cannot be written." } }; };
  await show(showRun, { session: { ...world.session, settings: { lr_factor: { low: 0.01, high: 100, about: "" } } } });
  assert.ok(button("Continue").hidden && !button("Pause").hidden && button("Evaluate").hidden);
  button("Pause").click();
  await settle();
  await again();
  assert.equal(text(".control [role=alert]"), "pause: It cannot be written.");
  button("Stop").click();
  assert.equal(sent.length, 1);
  button("Save and end").click();
  one("#set-lr_factor").value = "0.5";
  button("Apply").click();
  await settle();
  assert.deepEqual(sent, [{ command: "pause", values: {} }, { command: "stop", values: {} }, { command: "set", values: { lr_factor: 0.5 } }]);
});

test("a run that has ended offers no command", async () => {
  answers["/api/run"] = () => aboutRun({ status: { control: CONTROL }, state: "stopped" });
  await show(showRun);
  assert.ok(one(".control").hidden);
});

test("the list shows runs that come and go, finds them, and compares the chosen ones", async () => {
  const wanted = [];
  answers["/api/runs"] = () => ({ runs: ["a", "b"].map((run) => inList(run)), now: nowS() });
  await show(showRuns, { go: (address) => wanted.push(address) });
  const shown = () => all(".runs tbody th a").map((link) => link.textContent).sort();
  assert.deepEqual(shown(), ["a", "b"]);
  for (const box of all("tbody input")) { box.checked = true; box.dispatchEvent(new Event("change")); }
  answers["/api/runs"] = () => ({ runs: ["b", "c"].map((run) => inList(run)), now: nowS() });
  await again();
  assert.deepEqual(shown(), ["b", "c"]);
  button("Show 1 run").click();
  assert.deepEqual(wanted, ["/compare?run=b"]);
  one("#filter").value = "c seed1";
  one("#filter").dispatchEvent(new Event("input"));
  assert.deepEqual(shown(), ["c"]);
});

test("a comparison has a figure, tables and the command", async () => {
  const table = { headings: ["configuration", "score"], rows: [["x", "1"]] };
  answers["/api/compare"] = { games: [{ env: "Pong", at_steps: 100, table, improvement: null }], notes: [], command: "python -m it" };
  await show(showComparison, { query: new URLSearchParams("run=a&run=b") });
  assert.equal(one(".figure").getAttribute("src"), "/api/compare.png?run=a&run=b");
  assert.ok(text("table").includes("score") && text(".log") === "python -m it");
  answers["/api/compare"] = { status: 422, body: { error: "They are too few." } };
  await show(showComparison);
  assert.equal(text("[role=alert]"), "They are too few.");
});

test("nothing is asked while nobody looks, and again afterwards", async () => {
  await show(showRuns);
  hide(true);
  asked.length = 0;
  await again();
  assert.deepEqual(asked, []);
  hide(false);
  await settle();
  assert.equal(asked.length, 1);
});

test("a server that is away or lets nobody in is asked again", async () => {
  answers["/api/runs"] = undefined;
  await show(showRuns);
  assert.equal(text("#connection"), "connection lost, trying again");
  answers["/api/runs"] = { status: 403, body: { error: "Open the address." } };
  await again();
  assert.equal(text(".problem.pad"), "Open the address.");
  answers["/api/runs"] = () => ({ runs: [inList("a")], now: nowS() });
  await again();
  assert.equal(text("#connection"), "live");
  assert.equal(one(".problem.pad"), null);
});

test("a late answer to a view that was left changes nothing", async () => {
  let release = null;
  answers["/api/run"] = () => new Promise((done) => { release = () => done(aboutRun()); });
  await show(showRun);
  await show(showRuns);
  asked.length = 0;
  release();
  await settle();
  assert.equal(world.observers.size, 0);
  assert.deepEqual(asked, []);
});

const found = {};
for (const [name, body] of Object.entries(tests)) {
  world.fresh();
  try {
    await body();
    found[name] = null;
  } catch (problem) {
    found[name] = String(problem.stack || problem);
  }
}
console.log(JSON.stringify(found));
process.exit(0);
