// A grid of any number of photos, of which only the visible rows exist.

import { createCell, fillCell, loadImage } from "./cell.js";
import { el, imageSize } from "./dom.js";
import { Selection } from "./selection.js";

const GAP = 8;
const SPARE_ROWS = 1;
const MAX_HEIGHT = 8e6; // pixels; browsers stop at less than twice of that
const SHAPE = 0.86; // height of a picture by its width
const LOAD_MS = 40; // a picture that scrolls past faster than this is not asked for
const LONG_PRESS_MS = 450;

export class Grid extends EventTarget {
  constructor(scroller, store) {
    super();
    this.scroller = scroller;
    this.store = store;
    this.selection = new Selection();
    this.size = 160;
    this.hasPictures = true;
    this.columns = 1;
    this.rows = new Map(); // row number -> element
    this.spare = [];
    this.space = el("div", {
      class: "grid-space", role: "grid", "aria-label": "Photos", "aria-multiselectable": "true",
    });
    scroller.append(this.space);
    new ResizeObserver(() => this.#layout()).observe(scroller);
    scroller.addEventListener("scroll", () => this.#draw(), { passive: true });
    store.addEventListener("items", () => this.redraw());
    this.#followPointer();
  }

  get focusId() {
    return this.selection.focusId;
  }

  get nRows() {
    return Math.ceil(this.selection.ids.length / this.columns);
  }

  get lastVisibleIndex() {
    const bottom = this.#offset() + this.scroller.clientHeight;
    return Math.min(this.selection.ids.length, Math.ceil(bottom / this.rowHeight) * this.columns) - 1;
  }

  setIds(ids, { keepFocus = false, keepScroll = false } = {}) {
    const hadFocus = this.space.contains(document.activeElement);
    this.selection.setIds(ids, { keepFocus });
    this.space.setAttribute("aria-rowcount", this.nRows);
    this.#resize();
    if (!keepScroll) this.scroller.scrollTop = 0;
    if (keepFocus && !keepScroll) this.#reveal();
    this.redraw();
    if (hadFocus) this.focusCell();
    this.#emit("focus-item");
  }

  setSize(size) {
    this.size = size;
    this.#layout();
  }

  // Moves the focus; extends the choice from where it began if `extend`.
  moveTo(index, { extend = false, focus = true } = {}) {
    if (this.selection.isEmpty) return;
    if (extend) this.selection.extendTo(index);
    else this.selection.moveTo(index);
    this.#reveal();
    this.redraw();
    if (focus) this.focusCell();
    this.#emit("focus-item");
  }

  moveBy(step, options) {
    this.moveTo(this.selection.focus + step, options);
  }

  toggle(index) {
    this.selection.toggle(index);
    this.redraw();
    this.focusCell();
    this.#emit("focus-item");
  }

  selectAll() {
    this.selection.selectAll();
    this.redraw();
    this.#emit("focus-item");
  }

  clearSelection() {
    this.selection.clear();
    this.redraw();
    this.#emit("focus-item");
  }

  // How far a key moves the focus, or null for other keys.
  stepOf(key) {
    const { focus, ids } = this.selection;
    const page = this.columns * Math.max(1, Math.floor(this.scroller.clientHeight / this.rowHeight));
    const steps = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, PageUp: -page,
      PageDown: page, Home: -focus, End: ids.length - 1 - focus,
    };
    if (!(key in steps)) return null;
    const next = focus + steps[key];
    const leaves = key === "ArrowUp" && next < 0;
    const isShort = key === "ArrowDown" && next >= ids.length && Math.floor(focus / this.columns) === this.nRows - 1;
    return leaves || isShort ? 0 : steps[key];
  }

  focusCell() {
    this.cellOf(this.selection.focus)?.focus({ preventScroll: true });
  }

  cellOf(index) {
    return this.rows.get(Math.floor(index / this.columns))?.children[index % this.columns];
  }

  // Shows again what may have changed.
  redraw() {
    for (const [number, row] of this.rows) this.#fillRow(row, number);
    this.#draw();
  }

  #layout() {
    const style = getComputedStyle(this.scroller);
    const width = this.scroller.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (width <= 0) return;
    const hadFocus = this.space.contains(document.activeElement);
    const top = Math.floor(this.#offset() / (this.rowHeight ?? 1)) * this.columns;
    this.columns = Math.max(1, Math.floor((width + GAP) / (this.size + GAP)));
    this.cellWidth = (width - GAP * (this.columns - 1)) / this.columns;
    const font = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.isCompact = this.size < 120;
    this.rowHeight = Math.round(this.cellWidth * SHAPE + font * (this.isCompact ? 1.75 : 2.9)) + GAP;
    this.space.classList.toggle("compact", this.isCompact);
    this.space.style.setProperty("--columns", this.columns);
    this.space.style.setProperty("--thumb-height", `${Math.round(this.cellWidth * SHAPE)}px`);
    this.space.setAttribute("aria-colcount", this.columns);
    this.space.setAttribute("aria-rowcount", this.nRows);
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    this.spare = [];
    this.#resize();
    this.#scrollTo(Math.floor(top / this.columns) * this.rowHeight);
    this.#draw();
    if (hadFocus) this.focusCell();
  }

  #resize() {
    this.total = this.nRows * (this.rowHeight ?? 0);
    this.height = Math.min(this.total, MAX_HEIGHT);
    this.space.style.height = `${this.height}px`;
  }

  // Where the window is in the whole list, which may be higher than the element that scrolls.
  #offset() {
    return this.scroller.scrollTop * this.#stretch();
  }

  #stretch() {
    const visible = this.scroller.clientHeight;
    return this.total > this.height ? (this.total - visible) / (this.height - visible) : 1;
  }

  #scrollTo(offset) {
    this.scroller.scrollTop = offset / this.#stretch();
  }

  #reveal() {
    const top = Math.floor(this.selection.focus / this.columns) * this.rowHeight;
    const offset = this.#offset();
    const visible = this.scroller.clientHeight;
    const margin = Math.max(0, Math.min(this.rowHeight / 2, (visible - this.rowHeight) / 2));
    if (top < offset) this.#scrollTo(top - margin);
    else if (top + this.rowHeight > offset + visible) this.#scrollTo(top + this.rowHeight - visible + margin);
  }

  #draw() {
    if (!this.rowHeight || this.scroller.clientHeight === 0) return;
    const offset = this.#offset();
    const first = Math.max(0, Math.floor(offset / this.rowHeight) - SPARE_ROWS);
    const last = Math.min(
      this.nRows - 1,
      Math.floor((offset + this.scroller.clientHeight) / this.rowHeight) + SPARE_ROWS,
    );
    const focusRow = Math.floor(this.selection.focus / this.columns);
    for (const [number, row] of this.rows) {
      const stays = (number >= first && number <= last) || (number === focusRow && number < this.nRows);
      if (!stays) this.#dropRow(number, row);
    }
    for (let number = first; number <= last; number += 1) this.#placeRow(number, offset);
    if (focusRow < this.nRows) this.#placeRow(focusRow, offset);
    this.range = [first * this.columns, (last + 1) * this.columns];
    this.#loadSoon();
  }

  #dropRow(number, row) {
    this.rows.delete(number);
    row.remove();
    this.spare.push(row);
  }

  #placeRow(number, offset) {
    let row = this.rows.get(number);
    if (!row) {
      row = this.spare.pop() ?? this.#createRow();
      this.rows.set(number, row);
      this.#fillRow(row, number);
      this.#insertRow(row, number);
    }
    const top = number * this.rowHeight - offset + this.scroller.scrollTop;
    row.style.transform = `translateY(${top}px)`;
  }

  // Rows are in the document in their order, for those who read it.
  #insertRow(row, number) {
    const after = [...this.rows.keys()].filter((each) => each > number).sort((a, b) => a - b)[0];
    this.space.insertBefore(row, after === undefined ? null : this.rows.get(after));
  }

  #createRow() {
    return el("div", { class: "grid-row", role: "row" }, ...Array.from({ length: this.columns }, createCell));
  }

  #fillRow(row, number) {
    row.setAttribute("aria-rowindex", number + 1);
    const { ids, focus, chosen } = this.selection;
    const size = imageSize(this.cellWidth);
    for (let column = 0; column < this.columns; column += 1) {
      const index = number * this.columns + column;
      const id = index < ids.length ? ids[index] : null;
      fillCell(row.children[column], id, id === null ? null : this.store.get(id), {
        store: this.store, size, index, columns: this.columns, focused: index === focus,
        chosen: this.selection.isChosen(index), several: chosen.size > 0,
      });
    }
  }

  #loadSoon() {
    this.loading ??= setTimeout(() => {
      this.loading = null;
      this.store.request(this.selection.ids.subarray(...this.range));
      if (!this.hasPictures) return;
      for (const row of this.rows.values()) for (const cell of row.children) loadImage(cell);
    }, LOAD_MS);
  }

  #indexAt(event) {
    const cell = event.target.closest?.(".cell");
    return cell ? Number(cell.dataset.index) : null;
  }

  #followPointer() {
    this.space.addEventListener("click", (event) => {
      const index = this.#indexAt(event);
      if (index === null || this.pressed) return;
      if (event.shiftKey) this.moveTo(index, { extend: true });
      else if (event.ctrlKey || event.metaKey || this.selectMode) this.toggle(index);
      else this.moveTo(index);
    });
    this.space.addEventListener("dblclick", (event) => {
      if (this.#indexAt(event) !== null && !this.selectMode) this.#emit("open-item");
    });
    this.space.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault());
    this.space.addEventListener("pointerdown", (event) => this.#startPress(event));
    for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
      this.space.addEventListener(name, () => clearTimeout(this.press));
    }
    this.space.addEventListener("contextmenu", (event) => this.pressed && event.preventDefault());
  }

  // A long touch chooses a photo and begins a choice of several.
  #startPress(event) {
    this.pressed = false;
    const index = this.#indexAt(event);
    if (event.pointerType !== "touch" || index === null) return;
    this.press = setTimeout(() => {
      this.pressed = true;
      this.toggle(index);
      this.#emit("long-press");
    }, LONG_PRESS_MS);
  }

  #emit(name) {
    this.dispatchEvent(new CustomEvent(name));
  }
}
