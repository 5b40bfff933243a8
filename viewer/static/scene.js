// A scene file, and WebGL2 that draws it. The server has looked at its numbers (viewer/live/scenes.py).

// --- the file -----------------------------------------------------------------------------------------------------------

export async function parse(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const raw = await new Response(stream).arrayBuffer();
  const length = new DataView(raw).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(raw, 4, length)));
  const binary = Math.ceil((4 + length) / 4) * 4;
  const meshes = header.meshes.map((mesh) => ({
    vertices: new Int16Array(raw, binary + mesh.vertices, 3 * mesh.count),
    triangles: new (mesh.wide ? Uint32Array : Uint16Array)(raw, binary + mesh.triangles, 3 * mesh.faces),
    place: mesh.place, unit: mesh.unit,
  }));
  return { bodies: header.bodies, geoms: header.geoms, meshes, camera: header.camera };
}

// --- small mathematics: quaternions are (w, x, y, z), matrices lie by columns ---------------------------------------------

function turned([w, x, y, z], [a, b, c]) {
  const p = y * c - z * b + w * a, q = z * a - x * c + w * b, r = x * b - y * a + w * c;
  return [a + 2 * (y * r - z * q), b + 2 * (z * p - x * r), c + 2 * (x * q - y * p)];
}

const times = ([a, b, c, d], [e, f, g, h]) =>
  [a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g, a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e];
const plus = (a, b) => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const unit = (a) => a.map((one) => one / (Math.hypot(...a) || 1));
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];

const FIELD = Math.PI / 4;

function lens(aspect, near, far) {
  const f = 1 / Math.tan(FIELD / 2) * Math.min(1, aspect * 0.9), d = near - far;
  return [f / aspect, 0, 0, 0, 0, f, 0, 0, 0, 0, (near + far) / d, -1, 0, 0, (2 * near * far) / d, 0];
}

// MuJoCo's free camera: it looks at a place, from `azimuth` and `elevation` in degrees.
function view({ lookat, distance, azimuth, elevation }) {
  const a = (azimuth * Math.PI) / 180, e = (elevation * Math.PI) / 180;
  const ahead = [Math.cos(e) * Math.cos(a), Math.cos(e) * Math.sin(a), Math.sin(e)];
  const right = [Math.sin(a), -Math.cos(a), 0], up = cross(right, ahead);
  const eye = plus(lookat, ahead.map((one) => -distance * one));
  return [0, 1, 2].flatMap((k) => [right[k], up[k], -ahead[k], 0]).concat([-dot(right, eye), -dot(up, eye), dot(ahead, eye), 1]);
}

// --- shapes of size 1. A fourth number is how far a vertex goes along the axis when the shape is drawn longer. -------------

const AROUND = 32, ALONG = 16;

function grid(rows, columns, at) {
  const vertices = [], triangles = [];
  for (let i = 0; i <= rows; i++) for (let j = 0; j <= columns; j++) vertices.push(...at(i, j));
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      const k = i * (columns + 1) + j;
      triangles.push(k, k + 1, k + columns + 1, k + 1, k + columns + 2, k + columns + 1);
    }
  return { vertices: new Float32Array(vertices), triangles: new Uint16Array(triangles), size: 4 };
}

function ball() {
  // One row more than a sphere needs: the equator is there twice, once for each half of a capsule.
  return grid(ALONG + 1, AROUND, (i, j) => {
    const south = i <= ALONG / 2, b = ((south ? i : i - 1) / ALONG - 0.5) * Math.PI, a = (2 * Math.PI * j) / AROUND;
    return [Math.cos(b) * Math.cos(a), Math.cos(b) * Math.sin(a), Math.sin(b), south ? -1 : 1];
  });
}

function tube() {
  const rings = [[0, -1], [1, -1], [1, 1], [0, 1]];
  return grid(3, AROUND, (i, j) => {
    const a = (2 * Math.PI * j) / AROUND;
    return [rings[i][0] * Math.cos(a), rings[i][0] * Math.sin(a), rings[i][1], 0];
  });
}

function cube() {
  const vertices = [], triangles = [];
  for (const axis of [0, 1, 2])
    for (const side of [-1, 1]) {
      const first = vertices.length / 4;
      for (const [p, q] of [[-1, -1], [1, -1], [1, 1], [-1, 1]]) {
        const at = [0, 0, 0, 0];
        at[axis] = side; at[(axis + 1) % 3] = p; at[(axis + 2) % 3] = q;
        vertices.push(...at);
      }
      triangles.push(first, first + 1, first + 2, first, first + 2, first + 3);
    }
  return { vertices: new Float32Array(vertices), triangles: new Uint16Array(triangles), size: 4 };
}

const sheet = () => grid(1, 1, (i, j) => [2 * j - 1, 2 * i - 1, 0, 0]);

// What a kind is drawn by: the shape, its scale, how much longer.
const KINDS = {
  sphere: ([r]) => ["ball", [r, r, r], 0],
  capsule: ([r, half]) => ["ball", [r, r, r], half],
  ellipsoid: (size) => ["ball", size, 0],
  cylinder: ([r, half]) => ["tube", [r, r, half], 0],
  box: (size) => ["cube", size, 0],
  plane: (size) => ["sheet", size, 0],
};

// --- drawing ------------------------------------------------------------------------------------------------------------

const VERTEX = `#version 300 es
in vec4 place;
uniform mat4 view, lens;
uniform vec4 turn;
uniform vec3 at, scale;
uniform float stretch;
uniform vec2 offset;
out vec3 seen;
out vec2 ground;
void main() {
  vec3 p = place.xyz * scale + vec3(0.0, 0.0, place.w * stretch);
  ground = p.xy + offset;
  vec4 world = vec4(p + 2.0 * cross(turn.yzw, cross(turn.yzw, p) + turn.x * p) + at, 1.0);
  seen = (view * world).xyz;
  gl_Position = lens * vec4(seen, 1.0);
}`;
const FRAGMENT = `#version 300 es
precision highp float;
in vec3 seen;
in vec2 ground;
uniform vec4 colour, other;
uniform float cell, reach;
uniform vec2 middle;
uniform vec3 light;
out vec4 drawn;
void main() {
  vec3 n = normalize(cross(dFdx(seen), dFdy(seen))), eye = normalize(-seen);
  n = dot(n, eye) < 0.0 ? -n : n;
  float shade = 0.48 + 0.40 * max(dot(n, light), 0.0) + 0.20 * max(dot(n, eye), 0.0);
  vec4 own = colour;
  if (cell > 0.0) {
    vec2 k = floor(ground / cell);
    own = mod(k.x + k.y, 2.0) < 0.5 ? colour : other;
    shade = 1.0;
    own.a *= reach > 0.0 ? 1.0 - smoothstep(0.35 * reach, reach, length(ground - middle)) : 1.0;
  }
  drawn = vec4(own.rgb * shade * own.a, own.a);
}`;
// Where a plane has no end.
const FAR = 14;
const LIGHT = unit([0.45, 0.75, 0.5]);
const GOLD = [0.95, 0.72, 0.1, 0.75];

// A picture that is drawn within this is followed by the next one at once.
const QUICK_MS = 34;

export class Painter {
  // `canvas` of its own. `works`: whether this browser can.
  constructor(canvas) {
    this.canvas = canvas;
    this.gl = canvas.getContext("webgl2", { antialias: true, alpha: true, premultipliedAlpha: true });
    this.works = Boolean(this.gl);
    this.scene = null;
    this.drawing = null; // a fence behind the last picture, until it is drawn
    this.beganAt = this.restsUntil = 0;
    if (!this.works) return;
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => { this.drawing = null; this.prepare(); this.show(this.scene); });
    this.prepare();
  }

  // Whether the last picture is drawn, and the page had as long for everything else. Without a GPU one takes a second:
  // commands would wait in a queue, and the whole page with them. `now`: performance.now().
  isFree(now) {
    const { gl } = this;
    if (this.drawing) {
      if (gl.getSyncParameter(this.drawing, gl.SYNC_STATUS) !== gl.SIGNALED) return false;
      gl.deleteSync(this.drawing);
      this.drawing = null;
      const took = now - this.beganAt;
      this.restsUntil = took > QUICK_MS ? now + took : 0;
    }
    return now >= this.restsUntil;
  }

  // Behind the commands of one picture.
  fence() {
    const { gl } = this;
    this.beganAt = performance.now();
    this.drawing = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    gl.flush();
  }

  prepare() {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.bindAttribLocation(program, 0, "place");
    gl.linkProgram(program);
    gl.useProgram(program);
    this.at = new Proxy({}, { get: (kept, name) => (kept[name] ??= gl.getUniformLocation(program, name)) });
    this.shapes = Object.fromEntries(Object.entries({ ball, tube, cube, sheet }).map(([name, make]) => [name, this.load(make())]));
    gl.enable(gl.DEPTH_TEST);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  load({ vertices, triangles, size = 3 }) {
    const { gl } = this;
    const whole = gl.createVertexArray(), corners = gl.createBuffer(), faces = gl.createBuffer();
    gl.bindVertexArray(whole);
    gl.bindBuffer(gl.ARRAY_BUFFER, corners);
    gl.bufferData(gl.ARRAY_BUFFER, vertices, gl.STATIC_DRAW);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, size, vertices instanceof Int16Array ? gl.SHORT : gl.FLOAT, false, 0, 0);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, faces);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, triangles, gl.STATIC_DRAW);
    return { whole, corners, faces, count: triangles.length, kind: triangles instanceof Uint32Array ? gl.UNSIGNED_INT : gl.UNSIGNED_SHORT };
  }

  // What is drawn from now on.
  show(scene) {
    const { gl } = this;
    for (const mesh of this.meshes ?? []) {
      gl.deleteVertexArray(mesh.whole);
      gl.deleteBuffer(mesh.corners);
      gl.deleteBuffer(mesh.faces);
    }
    this.scene = scene;
    this.meshes = (scene?.meshes ?? []).map((mesh) => this.load(mesh));
  }

  // `poses` [B × 7] as viewer/static/playback.js has them; `theme`: {floor: [rgba, rgba]}; `goal`: a place, or null.
  draw(poses, camera, theme, goal) {
    const { gl, canvas, at } = this;
    if (gl.isContextLost() || !this.scene) return;
    const dense = Math.min(2, devicePixelRatio || 1);
    const width = Math.max(1, Math.round(canvas.clientWidth * dense)), height = Math.max(1, Math.round(canvas.clientHeight * dense));
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    gl.viewport(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.uniformMatrix4fv(at.view, false, view(camera));
    gl.uniformMatrix4fv(at.lens, false, lens(width / height, 0.02 * camera.distance, 40 * camera.distance));
    gl.uniform3fv(at.light, LIGHT);
    const clear = [];
    for (const geom of this.scene.geoms) {
      if (geom.rgba[3] <= 0) continue;
      if (geom.rgba[3] < 1 || geom.type === "plane") clear.push(geom);
      else this.geom(geom, poses, camera, theme);
    }
    gl.enable(gl.BLEND);
    for (const geom of clear) this.geom(geom, poses, camera, theme);
    if (goal) this.piece(this.shapes.ball, goal, [1, 0, 0, 0], Array(3).fill(0.018 * camera.distance), 0, GOLD);
    gl.disable(gl.BLEND);
    this.fence();
  }

  geom({ body, type, size, rgba, pos, quat, mesh }, poses, camera, theme) {
    let place = pos, turn = unit(quat);
    if (body >= 0) {
      const own = poses.subarray(7 * body, 7 * body + 7), q = own.subarray(3);
      place = plus(turned(q, pos), own);
      turn = times(q, turn);
    }
    if (type === "mesh") {
      const { place: middle, unit: step } = this.scene.meshes[mesh];
      return this.piece(this.meshes[mesh], plus(place, turned(turn, middle)), turn, [step, step, step], 0, rgba);
    }
    const [shape, scale, stretch] = KINDS[type](size);
    if (type === "plane") return this.plane(place, turn, scale, rgba, camera, theme);
    return this.piece(this.shapes[shape], place, turn, scale, stretch, rgba);
  }

  // One without an end goes along with the camera, in steps of two squares, so that nobody sees it move.
  plane(place, turn, [a, b], rgba, camera, theme) {
    const { gl, at } = this;
    const cell = 2 ** Math.round(Math.log2(camera.distance / 6)), reach = FAR * camera.distance, endless = !a || !b;
    const [w, x, y, z] = turn, local = turned([w, -x, -y, -z], camera.lookat.map((one, k) => one - place[k]));
    const shift = endless ? [a ? 0 : 2 * cell * Math.round(local[0] / (2 * cell)), b ? 0 : 2 * cell * Math.round(local[1] / (2 * cell))] : [0, 0];
    gl.uniform1f(at.cell, cell);
    gl.uniform1f(at.reach, endless ? reach / 2 : 0);
    gl.uniform2fv(at.offset, shift);
    gl.uniform2f(at.middle, local[0], local[1]);
    const [own, other] = endless ? theme.floor : [rgba, [...rgba.slice(0, 3).map((one) => 0.88 * one), rgba[3]]];
    gl.uniform4fv(at.other, other);
    this.piece(this.shapes.sheet, plus(place, turned(turn, [...shift, 0])), turn, [a || reach, b || reach, 1], 0, own);
    gl.uniform1f(at.cell, 0);
    gl.uniform2f(at.offset, 0, 0);
  }

  piece(shape, place, turn, scale, stretch, colour) {
    const { gl, at } = this;
    gl.bindVertexArray(shape.whole);
    gl.uniform3fv(at.at, place.slice(0, 3));
    gl.uniform4fv(at.turn, turn);
    gl.uniform3fv(at.scale, scale);
    gl.uniform1f(at.stretch, stretch);
    gl.uniform4fv(at.colour, colour);
    gl.drawElements(gl.TRIANGLES, shape.count, shape.kind, 0);
  }
}
