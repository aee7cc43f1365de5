// A larger picture beside a photo under the pointer, after a moment.

import { el, picture, setText } from "./dom.js";
import { scoreRow } from "./preview.js";

const DELAY_MS = 650;
const WIDTH = 340;
const FINE = matchMedia("(hover: hover) and (pointer: fine)");

export class Peek {
  constructor(app) {
    this.app = app;
    this.name = el("p", { class: "peek-name" });
    this.scores = el("div", { class: "scores" });
    this.frame = el("div", { class: "peek-frame" });
    this.root = el("div", { class: "peek", "aria-hidden": "true", hidden: true }, this.frame, this.name, this.scores);
    document.body.append(this.root);
    const { space, scroller } = app.grid;
    space.addEventListener("pointermove", (event) => this.#start(event));
    space.addEventListener("pointerleave", () => this.hide());
    scroller.addEventListener("scroll", () => this.hide(), { passive: true });
    for (const name of ["pointerdown", "keydown"]) document.addEventListener(name, () => this.hide());
  }

  #start(event) {
    const cell = event.target.closest(".cell");
    if (!event.movementX && !event.movementY) return; // the page moved, not the pointer
    if (cell === this.cell || event.pointerType === "touch" || !FINE.matches) return;
    this.hide();
    this.cell = cell;
    if (cell) this.timer = setTimeout(() => this.#show(cell), DELAY_MS);
  }

  #show(cell) {
    const { store, keys } = this.app;
    const item = store.get(cell.itemId);
    if (!item || !cell.isConnected || document.querySelector("dialog[open]")) return;
    const box = cell.getBoundingClientRect();
    if (box.width > WIDTH * 1.2) return;
    this.frame.replaceChildren(picture(item.id, 640));
    setText(this.name, item.name);
    this.scores.replaceChildren(
      ...item.scores.slice(0, 3).map(([name, score]) => scoreRow(name, score, { colour: store.colourOf(name), key: keys.keyOf(name) })),
    );
    this.root.hidden = false;
    const fitsRight = box.right + WIDTH + 24 < innerWidth;
    this.root.style.left = `${fitsRight ? box.right + 10 : Math.max(8, box.left - WIDTH - 26)}px`;
    this.root.style.top = `${Math.max(8, Math.min(box.top, innerHeight - this.root.offsetHeight - 12))}px`;
  }

  hide() {
    clearTimeout(this.timer);
    this.cell = null;
    this.root.hidden = true;
  }
}
