// The map: points that are zoomed, hovered, and selected with a lasso.

import { openCanvas } from "./map_canvas.js";
import { listen } from "./map_gestures.js";
import { blend, clamp, PointIndex, View } from "./map_points.js";
import { hasFastWebgl, openWebgl } from "./map_webgl.js";

const MOVE_MS = 900; // from one set of positions to the next
const HOVER_PIXELS = 12;

/**
 * Show points in a canvas, whose size is that of its box on the page.
 *
 * Selection belongs to the page: a click or a lasso calls `onSelect`, and the page calls `select`
 * with the points to mark. Marks and the lasso have the CSS `color` of the canvas.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {object} handlers
 * @param {(ids: number[], additive: boolean) => void} handlers.onSelect points that were clicked
 *   or are inside a lasso, ascending; additive if Shift was held
 * @param {(id: number | null) => void} handlers.onHover the point below the pointer changed
 * @param {(id: number) => void} handlers.onOpen double click on a point
 * @param {"auto" | "webgl" | "2d"} renderer by default WebGL if there is a GPU, else a 2D canvas
 */
export function createMap(canvas, handlers, renderer = "auto") {
  const map = new PointMap(canvas, handlers, renderer);
  return {
    /** Show points at x, y from -1 to 1; they move there if they were shown elsewhere. */
    setPoints: (xy) => map.setPoints(xy),
    /** Colour points by numbers of `palette` (CSS colours; grey if there is no such number). */
    setColours: (index, alpha, palette) => map.setColours(index, alpha, palette),
    select: (ids) => map.select(ids),
    /** Mark a point and bring it into view; null for none. */
    focus: (id) => map.focus(id),
    /** Where a point is, [left, top] in CSS pixels of the canvas; null if it has no position. */
    locate: (id) => map.locate(id),
    fit: () => map.fit(),
    resize: () => map.resize(),
    destroy: () => map.destroy(),
  };
}

class PointMap {
  constructor(canvas, { onSelect, onHover, onOpen }, renderer) {
    this.canvas = canvas;
    this.handlers = { onSelect, onHover, onOpen };
    this.view = new View();
    this.from = this.to = new Float32Array(0);
    this.index = new PointIndex(this.to);
    this.colours = null;
    this.selected = [];
    this.focused = null;
    this.hovered = null;
    this.lasso = [];
    this.share = 1; // of the way from `from` to `to`
    this.frame = 0; // that the browser was asked for
    const isWebgl = renderer === "webgl" || (renderer === "auto" && hasFastWebgl());
    this.renderer = (isWebgl && openWebgl(canvas)) || openCanvas(canvas);
    this.#listen();
    this.resize();
  }

  #listen() {
    const { canvas } = this;
    this.listening = new AbortController();
    const { signal } = this.listening;
    if (!canvas.hasAttribute("tabindex")) canvas.tabIndex = 0;
    canvas.style.touchAction = "none";
    listen(canvas, this, signal);
    const onLost = (event) => {
      event.preventDefault(); // so that the context is restored
      this.renderer = null;
    };
    canvas.addEventListener("webglcontextlost", onLost, { signal });
    canvas.addEventListener("webglcontextrestored", () => this.#restore(), { signal });
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(canvas);
  }

  #restore() {
    this.renderer = openWebgl(this.canvas);
    this.renderer.setPositions(this.from, this.to);
    this.renderer.setMarked(this.selected);
    if (this.colours) this.renderer.setColours(...this.colours);
    this.draw();
  }

  setPoints(xy) {
    const wasShown = this.to.length === xy.length;
    const now = this.share < 1 ? blend(this.from, this.to, this.share) : this.to;
    const still = !wasShown || matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.to = xy;
    this.from = still ? xy : now.map((value, i) => (Number.isNaN(value) ? xy[i] : value));
    this.index = new PointIndex(xy);
    this.renderer?.setPositions(this.from, this.to);
    if (!this.colours || this.colours[0].length !== xy.length / 2) this.#colourGrey(xy.length / 2);
    this.select(this.selected);
    this.#setHovered(null);
    this.started = still ? -Infinity : performance.now();
    this.share = still ? 1 : 0;
    this.draw();
  }

  #colourGrey(n) {
    this.setColours(new Uint16Array(n), new Uint8Array(n).fill(255), []);
  }

  setColours(index, alpha, palette) {
    this.colours = [index, alpha, parseColours(palette)];
    this.ink = [...parseColours([getComputedStyle(this.canvas).color])]
      .slice(0, 3)
      .map((value) => value / 255);
    this.renderer?.setColours(...this.colours);
    this.draw();
  }

  select(ids) {
    this.selected = Array.from(ids).filter((id) => this.#isShown(id));
    this.renderer?.setMarked(this.selected);
    this.draw();
  }

  focus(id) {
    this.focused = id;
    const place = this.locate(id);
    if (place && !this.#isInView(place)) {
      [this.view.x, this.view.y] = [this.to[2 * id], this.to[2 * id + 1]];
    }
    this.draw();
  }

  locate(id) {
    return this.#isShown(id) ? this.view.toScreen(this.to[2 * id], this.to[2 * id + 1]) : null;
  }

  #isShown(id) {
    return id !== null && Number.isFinite(this.to[2 * id] + this.to[2 * id + 1]);
  }

  #isInView([left, top]) {
    return left >= 0 && left <= this.view.width && top >= 0 && top <= this.view.height;
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    const ratio = window.devicePixelRatio || 1;
    this.view.resize(clientWidth, clientHeight);
    this.canvas.width = Math.max(1, Math.round(clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(clientHeight * ratio));
    this.draw();
  }

  destroy() {
    this.listening.abort();
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    this.frame = -1; // no more frames
    this.renderer?.destroy();
  }

  // What gestures do

  pan(right, down) {
    this.view.pan(right, down);
    this.draw();
  }

  zoom(factor, [left, top] = [this.view.width / 2, this.view.height / 2]) {
    this.view.zoom(factor, left, top);
    this.draw();
  }

  fit() {
    this.view.fit();
    this.draw();
  }

  hover(place) {
    this.#setHovered(place && this.#nearest(place));
  }

  click(place, additive) {
    const id = this.#nearest(place);
    this.handlers.onSelect(id === null ? [] : [id], additive);
  }

  open(place) {
    const id = this.#nearest(place);
    if (id !== null) this.handlers.onOpen(id);
  }

  drawLasso(corners) {
    this.lasso = corners;
    if (corners.length) this.started = -Infinity; // points must not move away below the lasso
    this.draw();
  }

  endLasso(corners, additive) {
    const polygon = corners.map(([left, top]) => this.view.toPlane(left, top));
    this.handlers.onSelect(this.index.inside(polygon), additive);
  }

  #nearest([left, top]) {
    const [x, y] = this.view.toPlane(left, top);
    const id = this.index.nearest(x, y, HOVER_PIXELS / this.view.scale);
    return id < 0 ? null : id;
  }

  #setHovered(id) {
    if (id === this.hovered) return;
    this.hovered = id;
    this.handlers.onHover(id);
    this.draw();
  }

  // Frames

  /** Ask for one frame, however often this is called before it comes. */
  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame((time) => {
      this.frame = 0;
      this.#drawNow(time);
    });
  }

  #drawNow(time) {
    if (this.share < 1) {
      const passed = clamp((time - this.started) / MOVE_MS, 0, 1);
      this.share = passed * passed * (3 - 2 * passed);
      if (this.share < 1) this.draw();
    }
    this.renderer?.draw(this.#describeFrame());
  }

  /** All lengths in device pixels; `ring` is the width of the border of a marked point. */
  #describeFrame() {
    const { view, canvas } = this;
    const ratio = canvas.width / view.width;
    return {
      width: canvas.width,
      height: canvas.height,
      x: view.x,
      y: view.y,
      scale: view.scale * ratio,
      size: this.#pointSize() * ratio,
      ring: ratio,
      share: this.share,
      ink: this.ink ?? [0.5, 0.5, 0.5],
      emphasised: [this.focused, this.hovered].filter((id) => this.#isShown(id)),
      lasso: this.lasso.map(([left, top]) => [left * ratio, top * ratio]),
    };
  }

  /** CSS pixels: the more points, the smaller; larger when zoomed in. */
  #pointSize() {
    const { view } = this;
    const atFit = clamp((1.2 * view.fittingScale) / Math.sqrt(this.to.length / 2 + 1), 2.5, 7);
    return clamp(atFit * Math.sqrt(view.scale / view.fittingScale), atFit, 14);
  }
}

/** Red, green, blue and alpha of CSS colours, one after the other. */
function parseColours(colours) {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const pixels = new Uint8Array(4 * colours.length);
  colours.forEach((colour, i) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    pixels.set(context.getImageData(0, 0, 1, 1).data, 4 * i);
  });
  return pixels;
}
