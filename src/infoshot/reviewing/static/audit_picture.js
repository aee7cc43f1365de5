// The picture that the audit asks about, and those after it, loaded ahead.
//
// Only a picture that is seen can be answered. Where the server does not answer, the picture is
// asked for again when it is back; only the server itself can say that a picture cannot be shown.

import { el, imageUrl, picture } from "./dom.js";
import { canShowPicture } from "./server.js";

const SIZE = 1600;
const AHEAD = 3;
const RETRY_MS = 3000;
const NOTES = {
  lost: "Waiting for the server: the picture is not here yet.",
  unavailable: "This picture cannot be shown. Answer “none of the classes”.",
};

export class AuditPicture {
  constructor(stage) {
    this.stage = stage;
    this.loaded = new Map(); // number of a photo -> its image and whether it can be seen
  }

  get canBeAnswered() {
    return ["shown", "unavailable"].includes(this.current?.state);
  }

  get isLost() {
    return this.current?.state === "lost";
  }

  // Shows the first of these photos; the next ones are loaded when it is here.
  show(ids) {
    const wanted = new Set(ids.slice(0, AHEAD + 1));
    for (const id of this.loaded.keys()) if (!wanted.has(id)) this.loaded.delete(id);
    this.ids = [...wanted];
    this.current = this.#load(ids[0]);
    if (this.isLost) this.retry();
    this.#draw();
  }

  showNote(text) {
    this.current = null;
    this.stage.replaceChildren(el("p", { class: "stage-note", role: "status", text }));
  }

  retry() {
    const { current } = this;
    if (!current) return;
    current.state = "loading";
    current.image.src = imageUrl(current.id, SIZE);
  }

  #load(id) {
    const known = this.loaded.get(id);
    if (known) return known;
    const image = picture(id, SIZE, { class: "stage-image", alt: "Photo to answer" });
    const one = { id, image, state: "loading" };
    image.addEventListener("load", () => this.#set(one, "shown"));
    image.addEventListener("error", () => this.#explain(one));
    this.loaded.set(id, one);
    return one;
  }

  async #explain(one) {
    const exists = await canShowPicture(one.id, SIZE).catch(() => true);
    this.#set(one, exists ? "lost" : "unavailable");
  }

  #set(one, state) {
    one.state = state;
    if (one !== this.current) return;
    if (state === "lost") setTimeout(() => this.isLost && this.retry(), RETRY_MS);
    this.#draw();
  }

  #draw() {
    const { image, state } = this.current;
    const note = NOTES[state] ? [el("p", { class: "stage-note", role: "status", text: NOTES[state] })] : [];
    image.classList.toggle("broken", note.length > 0);
    this.stage.replaceChildren(image, ...note);
    if (this.canBeAnswered) for (const id of this.ids) this.#load(id);
  }
}
