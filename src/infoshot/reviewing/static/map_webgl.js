// Draws the points of the map with WebGL 2.

const AWAY = 1e6; // where points without a position are: never in view
const PALETTE_WIDTH = 256;
const SOFTWARE = /swiftshader|llvmpipe|softpipe|software|basic render/i;

const POINT_VERTEX = `#version 300 es
precision highp float;
precision highp int;
layout(location = 0) in vec2 start;
layout(location = 1) in vec2 end;
layout(location = 2) in uint colour;
layout(location = 3) in float alpha;
uniform vec2 centre, scale;
uniform float share, size, strength;
uniform uint nColours;
uniform highp sampler2D palette;
out vec4 fill;
void main() {
  gl_Position = vec4((mix(start, end, share) - centre) * scale, 0.0, 1.0);
  gl_PointSize = size;
  ivec2 place = ivec2(colour % ${PALETTE_WIDTH}u, colour / ${PALETTE_WIDTH}u);
  vec3 rgb = colour < nColours ? texelFetch(palette, place, 0).rgb : vec3(0.55);
  fill = vec4(rgb, strength > 1.0 ? 1.0 : alpha * strength);
}`;

const POINT_FRAGMENT = `#version 300 es
precision highp float;
in vec4 fill;
uniform float size, ring;
uniform vec3 ink;
out vec4 colour;
void main() {
  float distance = length(gl_PointCoord - 0.5) * size;
  float cover = clamp(size * 0.5 - distance + 0.5, 0.0, 1.0);
  float border = ring > 0.0 ? clamp(distance - size * 0.5 + ring + 0.5, 0.0, 1.0) : 0.0;
  vec4 inner = mix(fill, vec4(ink, 1.0), border);
  colour = vec4(inner.rgb, 1.0) * inner.a * cover;
}`;

const LINE_VERTEX = `#version 300 es
precision highp float;
layout(location = 0) in vec2 place;
uniform vec2 canvas;
void main() {
  gl_Position = vec4(place / canvas * 2.0 - 1.0, 0.0, 1.0) * vec4(1.0, -1.0, 1.0, 1.0);
}`;

const LINE_FRAGMENT = `#version 300 es
precision highp float;
uniform vec3 ink;
out vec4 colour;
void main() { colour = vec4(ink, 1.0); }`;

/** Whether there is WebGL 2 on a GPU; without one a 2D canvas is faster. */
export function hasFastWebgl() {
  const gl = new OffscreenCanvas(1, 1).getContext("webgl2");
  if (!gl) return false;
  const names = gl.getExtension("WEBGL_debug_renderer_info");
  const name = gl.getParameter(names?.UNMASKED_RENDERER_WEBGL ?? gl.RENDERER);
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return !SOFTWARE.test(name);
}

/** Draw with WebGL 2; null if the browser has none. */
export function openWebgl(canvas) {
  const gl = canvas.getContext("webgl2", { antialias: false, depth: false });
  return gl && new WebglRenderer(gl);
}

class WebglRenderer {
  constructor(gl) {
    this.gl = gl;
    this.nPoints = 0;
    this.nMarked = 0;
    this.nColours = 0;
    this.points = new Program(gl, POINT_VERTEX, POINT_FRAGMENT);
    this.line = new Program(gl, LINE_VERTEX, LINE_FRAGMENT);
    this.buffers = Object.fromEntries(
      ["start", "end", "colour", "alpha", "marked", "one", "line"].map((name) => [
        name,
        gl.createBuffer(),
      ]),
    );
    this.palette = gl.createTexture();
    this.pointArray = gl.createVertexArray();
    this.lineArray = gl.createVertexArray();
    this.#describe();
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  /** Tell WebGL how attributes are stored. */
  #describe() {
    const { gl, buffers } = this;
    gl.bindVertexArray(this.pointArray);
    for (let place = 0; place < 4; place++) gl.enableVertexAttribArray(place);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.start);
    gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 0, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.end);
    gl.vertexAttribPointer(1, 2, gl.FLOAT, false, 0, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.colour);
    gl.vertexAttribIPointer(2, 1, gl.UNSIGNED_SHORT, 0, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.alpha);
    gl.vertexAttribPointer(3, 1, gl.UNSIGNED_BYTE, true, 0, 0);
    gl.bindVertexArray(this.lineArray);
    gl.enableVertexAttribArray(0);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.line);
    gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 0, 0);
    gl.bindVertexArray(null);
  }

  setPositions(from, to) {
    this.nPoints = to.length / 2;
    this.#fill(this.buffers.start, withoutNan(from));
    this.#fill(this.buffers.end, withoutNan(to));
  }

  /** @param {Uint8Array} palette red, green, blue and alpha of each colour */
  setColours(index, alpha, palette) {
    const { gl } = this;
    this.#fill(this.buffers.colour, index);
    this.#fill(this.buffers.alpha, alpha);
    this.nColours = palette.length / 4;
    const height = Math.max(1, Math.ceil(this.nColours / PALETTE_WIDTH));
    const pixels = new Uint8Array(PALETTE_WIDTH * height * 4);
    pixels.set(palette);
    gl.bindTexture(gl.TEXTURE_2D, this.palette);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    gl.texImage2D(
      gl.TEXTURE_2D, 0, gl.RGBA8, PALETTE_WIDTH, height, 0, gl.RGBA, gl.UNSIGNED_BYTE, pixels,
    );
  }

  setMarked(ids) {
    this.nMarked = ids.length;
    this.#fill(this.buffers.marked, Uint32Array.from(ids), this.gl.ELEMENT_ARRAY_BUFFER);
  }

  /** Draw a frame; see `map.js` for what it holds. */
  draw(frame) {
    const { gl } = this;
    gl.viewport(0, 0, frame.width, frame.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    if (this.nPoints) this.#drawPoints(frame);
    if (frame.lasso.length > 1) this.#drawLine(frame);
  }

  #drawPoints(frame) {
    const { gl, points } = this;
    gl.useProgram(points.program);
    gl.bindVertexArray(this.pointArray);
    gl.bindTexture(gl.TEXTURE_2D, this.palette);
    gl.uniform2f(points.at("centre"), frame.x, frame.y);
    gl.uniform2f(
      points.at("scale"), (2 * frame.scale) / frame.width, (2 * frame.scale) / frame.height,
    );
    gl.uniform1f(points.at("share"), frame.share);
    gl.uniform1ui(points.at("nColours"), this.nColours);
    gl.uniform3fv(points.at("ink"), frame.ink);
    this.#style(frame.size, 0, this.nMarked ? 0.4 : 1);
    gl.drawArrays(gl.POINTS, 0, this.nPoints);
    // All borders first, so that they do not cover the points next to them.
    const outer = frame.size + 2 * frame.ring;
    this.#style(outer, outer, 2);
    this.#drawSome(this.buffers.marked, this.nMarked);
    this.#style(frame.size, 0, 2);
    this.#drawSome(this.buffers.marked, this.nMarked);
    this.#style(frame.size + 10 * frame.ring, 2 * frame.ring, 2);
    for (const id of frame.emphasised) {
      this.#fill(this.buffers.one, Uint32Array.of(id), gl.ELEMENT_ARRAY_BUFFER);
      this.#drawSome(this.buffers.one, 1);
    }
    gl.bindVertexArray(null);
  }

  /** Size and border in device pixels; a strength above one ignores the alpha of the points. */
  #style(size, ring, strength) {
    this.gl.uniform1f(this.points.at("size"), size);
    this.gl.uniform1f(this.points.at("ring"), ring);
    this.gl.uniform1f(this.points.at("strength"), strength);
  }

  #drawSome(buffer, n) {
    const { gl } = this;
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, buffer);
    if (n) gl.drawElements(gl.POINTS, n, gl.UNSIGNED_INT, 0);
  }

  #drawLine(frame) {
    const { gl, line } = this;
    const corners = thicken(frame.lasso, frame.ring);
    this.#fill(this.buffers.line, corners);
    gl.useProgram(line.program);
    gl.bindVertexArray(this.lineArray);
    gl.uniform2f(line.at("canvas"), frame.width, frame.height);
    gl.uniform3fv(line.at("ink"), frame.ink);
    gl.drawArrays(gl.TRIANGLES, 0, corners.length / 2);
    gl.bindVertexArray(null);
  }

  #fill(buffer, values, target = this.gl.ARRAY_BUFFER) {
    this.gl.bindBuffer(target, buffer);
    this.gl.bufferData(target, values, this.gl.DYNAMIC_DRAW);
  }

  destroy() {
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }
}

/** A compiled program and the places of its uniforms. */
class Program {
  constructor(gl, vertex, fragment) {
    this.gl = gl;
    this.program = gl.createProgram();
    this.places = new Map();
    for (const [kind, source] of [
      [gl.VERTEX_SHADER, vertex],
      [gl.FRAGMENT_SHADER, fragment],
    ]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(this.program, shader);
    }
    gl.linkProgram(this.program);
    if (!gl.getProgramParameter(this.program, gl.LINK_STATUS) && !gl.isContextLost()) {
      throw new Error(`WebGL: ${gl.getProgramInfoLog(this.program)}`);
    }
  }

  at(name) {
    if (!this.places.has(name)) {
      this.places.set(name, this.gl.getUniformLocation(this.program, name));
    }
    return this.places.get(name);
  }
}

function withoutNan(xy) {
  return xy.map((value) => (Number.isNaN(value) ? AWAY : value));
}

/** Two triangles for each side of a closed polygon, as flat x and y. */
function thicken(polygon, halfWidth) {
  const corners = [];
  polygon.forEach(([x, y], i) => {
    const [toX, toY] = polygon[(i + 1) % polygon.length];
    const length = Math.hypot(toX - x, toY - y) || 1;
    const dx = ((toX - x) / length) * halfWidth;
    const dy = ((toY - y) / length) * halfWidth;
    const [a, b] = [[x - dx - dy, y - dy + dx], [x - dx + dy, y - dy - dx]];
    const [c, d] = [[toX + dx - dy, toY + dy + dx], [toX + dx + dy, toY + dy - dx]];
    corners.push(...a, ...b, ...c, ...c, ...b, ...d);
  });
  return new Float32Array(corners);
}
