// A list of very many rows of the same height, of which only the visible ones are in the document.

import { el } from "./dom.js";

/** Rows drawn above and below what is visible. */
const SPARE = 12;
/** Browsers draw nothing beyond some millions of pixels. */
const TALLEST = 8e6;

export class List {
  /** `draw(item, index)` returns the element of a row. `near(where)` is called at the "top" and the "bottom".
   *  `moved(atEnd)` is called when the user scrolls. */
  constructor(label, { draw, near, moved }) {
    this.items = [];
    this.draw = draw;
    this.near = near;
    this.moved = moved;
    this.rowHeight = 20;
    this.drawn = new Map();
    this.sized = el("div", { class: "sized" });
    this.element = el("div", { class: "lines", role: "log", "aria-live": "off", "aria-label": label, tabindex: 0 }, this.sized);
    this.element.addEventListener("scroll", () => {
      const { scrollTop, clientHeight, scrollHeight } = this.element;
      const up = scrollTop < this.top;
      this.top = scrollTop;
      this.paint();
      // A smooth scroll upwards begins with a pixel or two: it must not be undone by the next line.
      this.moved(up ? scrollTop + clientHeight >= scrollHeight - 1 : this.atEnd);
    }, { passive: true });
    new ResizeObserver(() => {
      const stay = this.pinned;
      this.measure();
      if (stay) this.toEnd();
      this.paint();
    }).observe(this.element);
    this.pinned = true;
    this.top = 0;
  }

  get atEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    return scrollTop + clientHeight >= scrollHeight - this.rowHeight * 1.5;
  }

  measure() {
    const height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row"));
    if (height) this.rowHeight = height;
  }

  /** Replace all items. */
  reset(items) {
    this.items = items;
    this.forget();
    this.resize();
    this.paint();
  }

  /** Add items at the end, drop the oldest beyond `most`, and stay where the reader is. */
  append(items, most) {
    for (const item of items) this.items.push(item);
    const surplus = this.items.length - most;
    if (surplus > 0) {
      this.items.splice(0, surplus);
      this.forget();
      if (!this.pinned) this.element.scrollTop -= surplus * this.rowHeight;
    }
    this.resize();
    if (this.pinned) this.toEnd();
    this.paint();
  }

  /** Add items at the beginning, and stay where the reader is. */
  prepend(items) {
    this.items = [...items, ...this.items];
    this.forget();
    this.resize();
    this.element.scrollTop += items.length * this.rowHeight;
    this.paint();
  }

  toEnd() {
    this.pinned = true;
    this.element.scrollTop = this.element.scrollHeight;
  }

  /** Scroll a row to the middle, unless it is visible. */
  show(index) {
    const top = index * this.rowHeight;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop + this.rowHeight || top > scrollTop + clientHeight - 2 * this.rowHeight) {
      this.pinned = false;
      this.element.scrollTop = top - clientHeight / 2;
    }
    this.paint();
  }

  /** Draw all rows again. */
  refresh() {
    this.forget();
    this.paint();
  }

  forget() {
    for (const row of this.drawn.values()) row.remove();
    this.drawn.clear();
  }

  resize() {
    this.sized.style.height = `${Math.min(TALLEST, this.items.length * this.rowHeight)}px`;
  }

  paint() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this.rowHeight) - SPARE);
    const last = Math.min(this.items.length, Math.ceil((scrollTop + clientHeight) / this.rowHeight) + SPARE);
    for (const [index, row] of this.drawn) {
      if (index < first || index >= last) {
        row.remove();
        this.drawn.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      if (this.drawn.has(index)) continue;
      const row = this.draw(this.items[index], index);
      row.style.transform = `translateY(${index * this.rowHeight}px)`;
      this.drawn.set(index, row);
      this.sized.append(row);
    }
    if (this.items.length && scrollTop < 10 * this.rowHeight) this.near("top");
    if (this.items.length && this.atEnd) this.near("bottom");
  }
}
