// Which tasks: a chip for each role, and one for each task. The choice is in the URL, as ?task=worker/3&task=…

import { badge, byTask, counted, el, query } from "./dom.js";

/** `changed()` is called after each choice. Returns the element, `set(rows)` for the tasks of the job, and
 *  `chosen()`: the names of the chosen tasks; empty if all are. */
export function picker(changed) {
  let rows = [];
  let wanted = new Set(query.all("task"));
  const summary = el("summary", { title: "Choose tasks", text: "Tasks" });
  const body = el("div", { class: "chips" });
  const element = el("details", { class: "picker" }, summary, body);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && element.open) {
      element.open = false;
      summary.focus();
    }
  });
  addEventListener("click", (event) => {
    if (!element.contains(event.target)) element.open = false;
  });

  function choose(names) {
    wanted = new Set(names.length === rows.length ? [] : names);
    query.set({ task: [...wanted].sort(byTask), t: null, at: null });
    draw();
    changed();
  }

  function chip(label, pressed, toggle, extra) {
    return el("button", { type: "button", "aria-pressed": String(pressed), onclick: toggle }, label, extra);
  }

  function draw() {
    const names = [...wanted];
    summary.textContent = !names.length ? (rows.length === 1 ? rows[0].task : `All ${counted(rows.length, "task")}`) : names.length <= 2 ? names.join(", ") : counted(names.length, "task");
    const roles = [...new Set(rows.map((row) => row.task.split("/")[0]))];
    const isAll = !names.length;
    body.replaceChildren(
      el("p", {}, chip("All tasks", isAll, () => choose([]))),
      ...roles.map((role) => {
        const own = rows.filter((row) => row.task.startsWith(`${role}/`));
        const has = (task) => wanted.has(task);
        const full = !isAll && own.every((row) => has(row.task));
        return el("fieldset", {}, el("legend", { text: role }),
          chip(`all ${own.length}`, full, () => choose(full ? names.filter((name) => !name.startsWith(`${role}/`)) : [...new Set([...names, ...own.map((row) => row.task)])])),
          ...own.map((row) => chip(row.task.split("/")[1], has(row.task),
            () => choose(has(row.task) ? names.filter((name) => name !== row.task) : [...names, row.task]),
            ["failed", "lost"].includes(row.state) ? badge(row.state) : null)));
      }),
    );
  }

  return {
    element,
    chosen: () => [...wanted],
    set(found) {
      const key = (some) => some.map((row) => row.task + row.state).join();
      if (key(found) === key(rows)) return;
      rows = [...found].sort((one, other) => byTask(one.task, other.task));
      draw();
    },
    only: (task) => choose([task]),
  };
}
