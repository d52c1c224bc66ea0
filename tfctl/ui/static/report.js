// The figures of `tfctl report` below the curves, and the link to TensorBoard.

import { badge, count, counted, el, figure, problem } from "./dom.js";
import { fetched } from "./stream.js";

const PARTS = [["first", "first step"], ["wait", "waits for input"], ["rest", "steps"], ["unmeasured", "not measured"]];
const percent = (part) => `${Math.round(part * 100)} %`;
const seconds = (value) => (value === null ? "" : `${value < 10 ? value.toFixed(1) : count(Math.round(value))} s`);

/** Returns the section, and `update`, which asks the hosts for the figures. */
export function report(job) {
  const path = encodeURIComponent(job);
  const body = el("div");
  const again = el("button", { type: "button", onclick: () => update() }, "Update");
  const element = el("section", { class: "report", "aria-labelledby": "report" },
    el("div", { class: "tools" }, el("h2", { id: "report", text: "Report" }), again, tensorboard(path)), body);

  async function update() {
    again.disabled = true;
    try {
      draw(await fetched(`/api/report/${path}`));
    } catch (error) {
      body.replaceChildren(problem(error));
    } finally {
      again.disabled = false;
    }
  }

  function draw({ report: { runs: [run], findings }, errors }) {
    const most = Math.max(...run.tasks.map((task) => task.seconds ?? 0), 1e-9);
    const spread = run.spread.examples_per_second ?? run.spread.seconds;
    body.replaceChildren(...errors.map(problem),
      ...findings.map((finding) => el("div", { class: "problem" }, el("p", { text: `${finding.cause}: ${finding.why}` }), el("p", { class: "remedy" }, "→ ", finding.check))),
      el("dl", { class: "facts" }, ...[
        ["Devices", `${counted(run.devices, "device")} on ${counted(run.hosts, "host")}`],
        ["Examples per second", run.examples_per_second === null ? "not known" : figure(run.examples_per_second)],
        ["Spread over tasks", spread ? percent(spread.spread) : "not known"],
      ].map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value })))),
      el("table", {}, el("caption", { class: "unseen", text: "Figures of each task" }),
        el("thead", {}, el("tr", {}, ...["Task", "Host", "State", "Steps", "Examples/s", "First step", "Input wait", "Time"].map((head, at) =>
          el("th", { scope: "col", class: ["", "wide", "", "number", "number", "number wide", "number wide", "spans-head"][at] }, head)))),
        el("tbody", {}, ...run.tasks.map((task) => row(task, most)))),
      el("p", { class: "legend" }, ...PARTS.flatMap(([kind, words]) => [el("span", { class: `key ${kind}` }), words])));
  }

  return { element, update };
}

function row(task, most) {
  const total = task.seconds ?? 0;
  const first = task.first_step === null ? 0 : Math.min(task.first_step, total);
  const wait = (task.input_wait ?? 0) * (total - first);
  const parts = task.first_step === null ? [0, 0, 0, total] : [first, wait, total - first - wait, 0];
  const words = PARTS.map(([, name], at) => [name, parts[at]]).filter(([, value]) => value).map(([name, value]) => `${name} ${seconds(value)}`).join(", ");
  const bar = el("span", { class: "spans", role: "img", "aria-label": words || "not known", title: words },
    ...PARTS.map(([kind], at) => { // a style attribute is not allowed, the property is
      const part = el("i", { class: kind });
      part.style.width = `${(100 * parts[at]) / most}%`;
      return part;
    }));
  return el("tr", {}, el("td", { text: `${task.role}/${task.index}` }), el("td", { class: "wide", text: task.host }), el("td", {}, badge(task.state)),
    el("td", { class: "number", text: task.steps === null ? "" : count(task.steps) }),
    el("td", { class: "number", text: task.examples_per_second === null ? "" : figure(task.examples_per_second) }),
    el("td", { class: "number wide", text: seconds(task.first_step) }), el("td", { class: "number wide", text: task.input_wait === null ? "" : percent(task.input_wait) }),
    el("td", {}, el("span", { class: "time-of" }, bar, el("span", { class: "number", text: seconds(task.seconds) }))));
}

/** A button that starts TensorBoard on the host, and is then a link to the tunnel. */
function tensorboard(path) {
  const place = el("span", { role: "status" });
  const button = el("button", { type: "button", async onclick() {
    button.disabled = true;
    place.textContent = "Starting TensorBoard on the host …";
    try {
      const { port } = await fetched(`/api/tensorboard/${path}`);
      // Under the other name of this machine, the browser does not send the cookie of this page to TensorBoard.
      const name = location.hostname === "localhost" ? "127.0.0.1" : "localhost";
      place.replaceChildren(el("a", { class: "button", href: `http://${name}:${port}/`, target: "_blank", rel: "noopener noreferrer" }, "Open TensorBoard"));
      button.remove();
    } catch (error) {
      place.replaceChildren(problem(error));
      button.disabled = false;
    }
  } }, "TensorBoard");
  return el("span", { class: "tools" }, button, place);
}
