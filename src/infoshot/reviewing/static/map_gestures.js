// Turns pointers, the wheel and keys on the canvas into actions of the map.

const CLICK_PIXELS = 4; // a pointer that moves less than this clicks
const STEP_PIXELS = 3; // between two corners of the lasso
const KEY_PAN = 60; // pixels
const KEY_ZOOM = 1.3;
const LINE_PIXELS = 16;

const KEYS = {
  ArrowLeft: (map) => map.pan(KEY_PAN, 0),
  ArrowRight: (map) => map.pan(-KEY_PAN, 0),
  ArrowUp: (map) => map.pan(0, KEY_PAN),
  ArrowDown: (map) => map.pan(0, -KEY_PAN),
  "+": (map) => map.zoom(KEY_ZOOM),
  "=": (map) => map.zoom(KEY_ZOOM),
  "-": (map) => map.zoom(1 / KEY_ZOOM),
  "0": (map) => map.fit(),
};

/**
 * Listen to a canvas until `signal` aborts.
 *
 * The primary button or one finger draws a lasso, or clicks; the middle button, the primary button
 * with the space key, or two fingers pan; the wheel or two fingers zoom.
 *
 * @param {object} map actions: pan(right, down), zoom(factor, place), fit(), open(place),
 *   hover(place), click(place, additive), drawLasso(corners), endLasso(corners, additive); places
 *   are [left, top] in CSS pixels of the canvas
 */
export function listen(canvas, map, signal) {
  const gestures = new Gestures(canvas, map);
  const on = (name, options = {}) =>
    canvas.addEventListener(name, (event) => gestures[name](event), { signal, ...options });
  for (const name of [
    "pointerdown", "pointermove", "pointerup", "pointercancel", "pointerleave", "dblclick",
    "keydown", "keyup", "blur",
  ]) {
    on(name);
  }
  on("wheel", { passive: false });
}

class Gestures {
  constructor(canvas, map) {
    this.canvas = canvas;
    this.map = map;
    this.pointers = new Map(); // places of the pointers that are down
    this.mode = null; // "lasso", "pan" or "pinch" while pointers are down
    this.corners = [];
    this.space = false;
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  pointerdown(event) {
    if (event.button > 1) return;
    if (event.button === 1) event.preventDefault(); // no automatic scrolling
    const place = this.#place(event);
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, place);
    if (this.pointers.size > 1) this.mode = "pinch";
    else this.mode = event.button === 1 || this.space ? "pan" : "lasso";
    this.corners = this.mode === "lasso" ? [place] : [];
    this.map.drawLasso([]);
  }

  pointermove(event) {
    const place = this.#place(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      if (!this.pointers.size) this.map.hover(place);
      return;
    }
    if (this.mode === "pinch") this.#pinch(event.pointerId, place);
    this.pointers.set(event.pointerId, place);
    if (this.mode === "pan") this.map.pan(place[0] - before[0], place[1] - before[1]);
    if (this.mode === "lasso") this.#extendLasso(event);
  }

  /** Add corners, also those between two frames, once the pointer has left its first place. */
  #extendLasso(event) {
    const passed = event.getCoalescedEvents?.() ?? [];
    for (const place of (passed.length ? passed : [event]).map((one) => this.#place(one))) {
      const least = this.corners.length > 1 ? STEP_PIXELS : CLICK_PIXELS;
      if (distance(place, this.corners.at(-1)) >= least) this.corners.push(place);
    }
    if (this.corners.length > 1) this.map.drawLasso(this.corners);
  }

  /** Keep what is below two fingers below them. */
  #pinch(pointer, place) {
    const before = this.pointers.get(pointer);
    const other = [...this.pointers].find(([id]) => id !== pointer)?.[1];
    if (!other) return;
    this.map.pan((place[0] - before[0]) / 2, (place[1] - before[1]) / 2);
    const middle = [(place[0] + other[0]) / 2, (place[1] + other[1]) / 2];
    this.map.zoom(distance(place, other) / Math.max(1, distance(before, other)), middle);
  }

  pointerup(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    if (this.mode === "lasso") {
      if (this.corners.length > 1) this.map.endLasso(this.corners, event.shiftKey);
      else this.map.click(this.#place(event), event.shiftKey);
    }
    // After a pinch the finger that is left does nothing.
    if (!this.pointers.size || this.mode === "lasso") this.#stop();
  }

  pointercancel(event) {
    this.pointers.delete(event.pointerId);
    if (!this.pointers.size || this.mode === "lasso") this.#stop();
  }

  #stop() {
    this.mode = null;
    this.corners = [];
    this.map.drawLasso([]);
  }

  pointerleave() {
    if (!this.pointers.size) this.map.hover(null);
  }

  dblclick(event) {
    this.map.open(this.#place(event));
  }

  wheel(event) {
    event.preventDefault();
    const unit = [1, LINE_PIXELS, this.canvas.clientHeight][event.deltaMode];
    // A pinch on a touchpad arrives as a wheel with the control key and small steps.
    const speed = event.ctrlKey ? 0.01 : 0.002;
    this.map.zoom(Math.exp(-event.deltaY * unit * speed), this.#place(event));
  }

  keydown(event) {
    if (event.key === " ") this.space = true;
    if (event.key === "Escape" && this.mode === "lasso") this.#stop();
    const known = Object.hasOwn(KEYS, event.key) && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (known) KEYS[event.key](this.map);
    if (known || event.key === " ") event.preventDefault();
  }

  keyup(event) {
    if (event.key === " ") this.space = false;
  }

  blur() {
    this.space = false;
  }
}

function distance(one, other) {
  return Math.hypot(one[0] - other[0], one[1] - other[1]);
}
