// Draws the points of the map into a 2D canvas, where WebGL is missing or slow.

const GREY = [140, 140, 140];

export function openCanvas(canvas) {
  return new CanvasRenderer(canvas.getContext("2d"));
}

/** Points are squares that are written into the pixels of an image, later ones over earlier ones. */
class CanvasRenderer {
  constructor(context) {
    this.context = context;
    this.from = this.to = new Float32Array(0);
    this.colours = new Uint32Array(0); // alpha, blue, green and red of every point
    this.marked = [];
    this.image = context.createImageData(1, 1);
  }

  setPositions(from, to) {
    this.from = from;
    this.to = to;
  }

  /** @param {Uint8Array} palette red, green, blue and alpha of each colour */
  setColours(index, alpha, palette) {
    this.colours = Uint32Array.from(index, (colour, i) => {
      const known = 4 * colour < palette.length;
      const [r, g, b] = known ? palette.subarray(4 * colour, 4 * colour + 3) : GREY;
      return pack(r, g, b, alpha[i]);
    });
  }

  setMarked(ids) {
    this.marked = ids;
  }

  /** Draw a frame; see `map.js` for what it holds. */
  draw(frame) {
    const pixels = this.#clear(frame.width, frame.height);
    const ink = pack(...frame.ink.map((value) => 255 * value), 255);
    const fade = this.marked.length ? 0.4 : 1;
    const paint = (id, size, colour) => this.#paint(pixels, frame, id, size, colour);
    for (let id = 0; id < this.colours.length; id++) {
      const alpha = (this.colours[id] >>> 24) * fade;
      paint(id, frame.size, (this.colours[id] & 0xffffff) | (alpha << 24));
    }
    const emphasise = (ids, size, border) => {
      // All borders first, so that they do not cover the points next to them.
      for (const id of ids) paint(id, size + 2 * border, ink);
      for (const id of ids) paint(id, size, this.colours[id] | 0xff000000);
    };
    emphasise(this.marked, frame.size, frame.ring);
    emphasise(frame.emphasised, frame.size + 6 * frame.ring, 2 * frame.ring);
    this.context.putImageData(this.image, 0, 0);
    if (frame.lasso.length > 1) this.#drawLine(frame);
  }

  #clear(width, height) {
    const fits = this.image.width === width && this.image.height === height;
    if (!fits) this.image = this.context.createImageData(width, height);
    return new Uint32Array(this.image.data.buffer).fill(0);
  }

  #paint(pixels, frame, id, size, colour) {
    const x = this.from[2 * id] + (this.to[2 * id] - this.from[2 * id]) * frame.share;
    const y = this.from[2 * id + 1] + (this.to[2 * id + 1] - this.from[2 * id + 1]) * frame.share;
    const side = Math.max(1, Math.round(size));
    const left = Math.round(frame.width / 2 + (x - frame.x) * frame.scale - side / 2);
    const top = Math.round(frame.height / 2 - (y - frame.y) * frame.scale - side / 2);
    // No comparison with NaN holds, so points without a position are not drawn.
    if (!(left + side > 0 && left < frame.width && top + side > 0 && top < frame.height)) return;
    const first = Math.max(left, 0);
    const last = Math.min(left + side, frame.width) - 1;
    const bottom = Math.min(top + side, frame.height);
    for (let row = Math.max(top, 0); row < bottom; row++) {
      const end = row * frame.width + last;
      for (let k = row * frame.width + first; k <= end; k++) pixels[k] = colour;
    }
  }

  #drawLine(frame) {
    const { context } = this;
    context.strokeStyle = `rgb(${frame.ink.map((value) => Math.round(255 * value)).join(" ")})`;
    context.lineWidth = 2 * frame.ring;
    context.beginPath();
    for (const [x, y] of frame.lasso) context.lineTo(x, y);
    context.closePath();
    context.stroke();
  }

  destroy() {
    this.context.clearRect(0, 0, this.context.canvas.width, this.context.canvas.height);
  }
}

function pack(r, g, b, alpha) {
  return ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
