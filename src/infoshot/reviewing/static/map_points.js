// Geometry of the map: the view, an index of the points, and the points inside a polygon.

const POINTS_PER_CELL = 2;
const MOST_CELLS = 512; // along one axis

/**
 * The part of the plane that the canvas shows. Positions on the screen are in CSS pixels from the
 * upper left corner of the canvas; y points up in the plane and down on the screen.
 */
export class View {
  constructor() {
    this.width = 1;
    this.height = 1;
    this.fit();
  }

  /** Pixels per unit at which the square from -1 to 1 just fits. */
  get fittingScale() {
    return 0.47 * Math.max(1, Math.min(this.width, this.height));
  }

  fit() {
    this.x = 0;
    this.y = 0;
    this.scale = this.fittingScale;
  }

  resize(width, height) {
    const zoom = this.scale / this.fittingScale;
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    this.scale = zoom * this.fittingScale;
  }

  toScreen(x, y) {
    return [
      this.width / 2 + (x - this.x) * this.scale,
      this.height / 2 - (y - this.y) * this.scale,
    ];
  }

  toPlane(left, top) {
    return [
      this.x + (left - this.width / 2) / this.scale,
      this.y - (top - this.height / 2) / this.scale,
    ];
  }

  pan(right, down) {
    this.x = clamp(this.x - right / this.scale, -1, 1);
    this.y = clamp(this.y + down / this.scale, -1, 1);
  }

  /** Zoom so that what is at this place of the screen stays there. */
  zoom(factor, left, top) {
    const [x, y] = this.toPlane(left, top);
    this.scale = clamp(this.scale * factor, this.fittingScale / 2, this.fittingScale * 400);
    const [newX, newY] = this.toPlane(left, top);
    this.x = clamp(this.x + x - newX, -1, 1);
    this.y = clamp(this.y + y - newY, -1, 1);
  }
}

/** Points by cells of a regular grid over the square from -1 to 1; points with NaN are left out. */
export class PointIndex {
  /** @param {Float32Array} xy */
  constructor(xy) {
    const n = xy.length / 2;
    this.xy = xy;
    this.nCells = clamp(Math.ceil(Math.sqrt(n / POINTS_PER_CELL)), 1, MOST_CELLS);
    const cellOf = new Int32Array(n).fill(-1);
    this.starts = new Int32Array(this.nCells * this.nCells + 1);
    for (let i = 0; i < n; i++) {
      if (Number.isNaN(xy[2 * i]) || Number.isNaN(xy[2 * i + 1])) continue;
      cellOf[i] = this.#cell(xy[2 * i + 1]) * this.nCells + this.#cell(xy[2 * i]);
      this.starts[cellOf[i] + 1]++;
    }
    for (let c = 0; c < this.nCells * this.nCells; c++) this.starts[c + 1] += this.starts[c];
    this.ids = new Int32Array(this.starts.at(-1));
    const next = this.starts.slice();
    for (let i = 0; i < n; i++) if (cellOf[i] >= 0) this.ids[next[cellOf[i]]++] = i;
  }

  #cell(value) {
    return clamp(Math.floor(((value + 1) / 2) * this.nCells), 0, this.nCells - 1);
  }

  /** Call `visit` with the number of every point in the cells that a box touches. */
  #visitBox(left, right, bottom, top, visit) {
    const first = this.#cell(left);
    const last = this.#cell(right);
    for (let row = this.#cell(bottom); row <= this.#cell(top); row++) {
      const end = this.starts[row * this.nCells + last + 1];
      for (let k = this.starts[row * this.nCells + first]; k < end; k++) visit(this.ids[k]);
    }
  }

  /** The number of the nearest point within a radius, -1 if there is none. */
  nearest(x, y, radius) {
    let best = -1;
    let least = radius * radius;
    this.#visitBox(x - radius, x + radius, y - radius, y + radius, (id) => {
      const distance = (this.xy[2 * id] - x) ** 2 + (this.xy[2 * id + 1] - y) ** 2;
      if (distance < least || (distance === least && id < best)) {
        least = distance;
        best = id;
      }
    });
    return best;
  }

  /** The numbers of the points inside a polygon `[[x, y], ...]` (even-odd rule), ascending. */
  inside(polygon) {
    if (polygon.length < 3) return [];
    const xs = Float64Array.from(polygon, (corner) => corner[0]);
    const ys = Float64Array.from(polygon, (corner) => corner[1]);
    const found = [];
    this.#visitBox(Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys), (id) => {
      if (isInside(this.xy[2 * id], this.xy[2 * id + 1], xs, ys)) found.push(id);
    });
    return found.sort((a, b) => a - b);
  }
}

/** Whether a ray from a point to the right crosses the polygon an odd number of times. */
function isInside(x, y, xs, ys) {
  let odd = false;
  for (let i = 0, j = xs.length - 1; i < xs.length; j = i++) {
    if (ys[i] > y !== ys[j] > y && x < ((xs[j] - xs[i]) * (y - ys[i])) / (ys[j] - ys[i]) + xs[i]) {
      odd = !odd;
    }
  }
  return odd;
}

/** Positions between two others; `share` 0 gives the first, 1 the second. */
export function blend(from, to, share) {
  return from.map((value, i) => value + (to[i] - value) * share);
}

export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}
