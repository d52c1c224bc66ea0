// One chart: lines over time in SVG, with a cursor that all charts of the page share.

import { el, figure, svg, when } from "./dom.js";

const HEIGHT = 150;
const LEFT = 56;
const BOTTOM = 20;
const TOP = 6;
const RIGHT = 8;

/** Round steps for an axis. */
function steps(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(value);
  return found;
}

const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];

export class Chart {
  /** `show`: how a value is written. `pointed(time)`: called with the time under the pointer, or null. */
  constructor(title, show, { pointed }) {
    this.title = title;
    this.show = show ?? figure;
    this.values = el("span", { class: "values" });
    this.picture = svg("svg", { role: "img", class: "chart" });
    this.element = el("figure", {}, el("figcaption", {}, el("b", { text: title }), this.values), this.picture);
    this.picture.addEventListener("pointermove", (event) => pointed(this.timeAt(event.offsetX)));
    this.picture.addEventListener("pointerleave", () => pointed(null));
  }

  timeAt(x) {
    const { from, to, width } = this;
    return from + ((x - LEFT) / Math.max(1, width - LEFT - RIGHT)) * (to - from);
  }

  /** `lines`: [{name, hue, t, y, faint}]; `marks`: [{time, text}]. */
  draw({ lines, marks, from, to }) {
    const width = Math.max(220, this.picture.clientWidth || 400);
    Object.assign(this, { lines, from, to, width });
    let low = Infinity;
    let high = -Infinity;
    for (const line of lines) {
      for (const value of line.y) {
        if (value === null) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    if (low === Infinity) [low, high] = [0, 1];
    if (low > 0 && low < high * 0.6) low = 0;
    if (low === high) [low, high] = [Math.min(0, low), high || 1];
    high += (high - low) * 0.05;
    const x = (time) => LEFT + ((time - from) / Math.max(1, to - from)) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    this.x = x;
    this.y = y;
    const parts = [];
    for (const value of steps(low, high, 3)) {
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
        text(LEFT - 6, y(value) + 4, this.show(value), "end"));
    }
    const each = TIMES.find((step) => (to - from) / step <= width / 110) ?? 604800;
    const zone = new Date(from * 1000).getTimezoneOffset() * 60;
    for (let time = Math.ceil((from - zone) / each) * each + zone; time <= to; time += each) {
      if (x(time) > width - 30 || x(time) < LEFT + 20) continue;
      parts.push(text(x(time), HEIGHT - 4, when(time).replace(/:00$/, ""), "middle"));
    }
    for (const mark of marks) {
      if (mark.time < from || mark.time > to) continue;
      const line = svg("line", { class: `mark ${mark.kind}`, x1: x(mark.time), x2: x(mark.time), y1: TOP, y2: HEIGHT - BOTTOM });
      line.append(svg("title", {}, mark.text));
      parts.push(line);
    }
    for (const line of lines) parts.push(this.path(line));
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, x1: -9, x2: -9 });
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.picture.setAttribute("aria-label", `${this.title}: ${this.latest()}`);
    this.picture.replaceChildren(...parts, this.cursor);
    this.point(null);
  }

  path(line) {
    let d = "";
    let last = null;
    const usual = line.t.length > 2 ? (line.t[line.t.length - 1] - line.t[0]) / line.t.length : 60;
    line.t.forEach((time, at) => {
      const value = line.y[at];
      if (value === null || value === undefined) return;
      const joined = last !== null && time - last < Math.max(45, usual * 5);
      d += `${joined ? "L" : "M"}${this.x(time).toFixed(1)} ${this.y(value).toFixed(1)}`;
      last = time;
    });
    return svg("path", { class: `curve hue${line.hue}${line.faint ? " faint" : ""}`, d: d.includes("L") ? d : d.replace(/M([\d.]+) ([\d.]+)/, "M$1 $2h2") });
  }

  latest() {
    return this.lines.slice(0, 3).map((line) => `${line.name} ${this.show(line.y.findLast((value) => value !== null) ?? 0)}`).join(", ");
  }

  /** Show the values at a time, or the last ones. */
  point(time) {
    if (!this.lines) return;
    const values = [];
    for (const line of this.lines) {
      let at = line.t.length - 1;
      if (time !== null) while (at > 0 && Math.abs(line.t[at - 1] - time) <= Math.abs(line.t[at] - time)) at -= 1;
      while (time === null && at > 0 && line.y[at] === null) at -= 1;
      const value = line.y[at];
      if (value !== null && value !== undefined) values.push([line, value]);
    }
    const place = time === null ? -9 : this.x(Math.max(this.from, Math.min(this.to, time)));
    this.cursor?.setAttribute("x1", place);
    this.cursor?.setAttribute("x2", place);
    const few = values.slice(0, 6);
    const all = values.map(([, value]) => value);
    const shown = values.length <= 6
      ? few.map(([line, value]) => el("span", { class: `hue${line.hue}` }, values.length > 1 ? `${line.name} ` : "", el("b", { text: this.show(value) })))
      : [el("span", {}, "minimum ", el("b", { text: this.show(Math.min(...all)) })), el("span", {}, "mean ", el("b", { text: this.show(all.reduce((sum, one) => sum + one, 0) / all.length) })),
        el("span", {}, "maximum ", el("b", { text: this.show(Math.max(...all)) }))];
    this.values.replaceChildren(...shown);
  }
}

function text(x, y, words, anchor) {
  const made = svg("text", { x, y, "text-anchor": anchor });
  made.textContent = words;
  return made;
}
