// Commands to a run under way. The run answers each; what it has not answered yet is said to wait.

import { send } from "./api.js";
import { ago, el, put } from "./dom.js";

const TEXTS = { pause: "Pause", continue: "Continue", save: "Save now", evaluate: "Evaluate now", stop: "Stop ..." };
const SURE = "Save and end the run?";
const NAMES = { lr_factor: "Learning rate ×", entropy_factor: "Entropy bonus ×", replay_share: "Share of replay" };

/** A panel of buttons for one run. `update` takes what the server said of the run. */
export class ControlPanel {
  constructor(run, session) {
    this.run = run;
    this.said = el("p.muted", { role: "status" });
    this.refusal = el("p.problem", { role: "alert" });  // stays until the next command
    this.answers = el("ul.answers");
    this.buttons = Object.fromEntries(Object.entries(TEXTS).map(([name, text]) =>
      [name, el("button", { type: "button", onclick: () => this.press(name) }, text)]));
    this.inputs = Object.fromEntries(Object.entries(session.settings).map(([name, { low, high, about }]) =>
      [name, el("input", { id: `set-${name}`, type: "number", min: low, max: high, step: "any", required: true, value: 1, title: about })]));
    this.form = el("form.more", { onsubmit: (event) => { event.preventDefault(); this.set(); } },
      Object.entries(this.inputs).map(([name, input]) => el("span.field", {}, el("label", { for: input.id }, NAMES[name] || name), input)),
      el("button", { type: "submit" }, "Apply"));
    this.node = el("section.card.control", { "aria-label": "Control", hidden: true },
      el("h2", {}, "Control"), el("div.more", {}, Object.values(this.buttons)), this.form, this.refusal, this.said, this.answers);
  }

  /** Stop asks once more: the first press arms the button for some seconds. */
  press(name) {
    const { stop } = this.buttons;
    if (name === "stop" && stop.textContent !== SURE) {
      stop.textContent = SURE;
      setTimeout(() => { stop.textContent = TEXTS.stop; }, 6000);
      return;
    }
    stop.textContent = TEXTS.stop;
    this.command(name);
  }

  update(about) {
    const control = about.status.control || {};
    const able = Array.isArray(control.commands) ? control.commands : [];
    this.node.hidden = ["ended", "failed", "stopped"].includes(about.state) || !able.length;
    if (this.node.hidden) return;
    const gone = about.state === "paused" ? "pause" : "continue";
    for (const [name, button] of Object.entries(this.buttons)) button.hidden = !able.includes(name) || name === gone;
    this.form.hidden = !able.includes("set");
    const settings = control.settings || {};
    for (const [name, input] of Object.entries(this.inputs)) {
      // What is not offered must not keep the form from being sent: its value may be out of bounds.
      input.disabled = input.parentNode.hidden = settings[name] === undefined;
      const now = JSON.stringify(settings[name]);
      if (input.dataset.now !== now && document.activeElement !== input) input.value = settings[name] ?? 1;
      input.dataset.now = now;
    }
    this.said.textContent = about.waiting ? `${about.waiting} not answered yet` : "";
    const answers = Array.isArray(control.acknowledged) ? control.acknowledged.slice(-5).reverse() : [];
    put(this.answers, answers.map((answer) => el("li", {},
      el("strong", {}, String(answer.command)), " ", String(answer.result ?? ""), el("span.muted", {}, ` · ${ago(answer.time)}`))));
  }

  set() {
    const values = {};
    for (const [name, input] of Object.entries(this.inputs)) {
      if (!input.disabled && JSON.stringify(Number(input.value)) !== input.dataset.now) values[name] = Number(input.value);
    }
    if (Object.keys(values).length) this.command("set", values);
    else this.refusal.textContent = "These are the present values.";
  }

  async command(name, values = {}) {
    this.refusal.textContent = "";
    this.said.textContent = `sending ${name} ...`;
    try {
      await send("/api/control", { run: this.run }, { command: name, values });
      this.said.textContent = `${name}: waiting for the run's answer`;
    } catch (problem) {
      this.said.textContent = "";
      this.refusal.textContent = `${name}: ${problem.message}`;
    }
  }
}
