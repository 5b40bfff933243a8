// Where one looks from: by mouse, fingers and keys.

// Degrees a pixel, degrees a key, how much nearer a key brings it.
const DRAG = 0.4, KEY = 10, NEARER = 0.85;

export class Orbit {
  // `changed`: called after each change. `camera`: as MuJoCo's free camera; null before a scene is there.
  constructor(canvas, changed) {
    this.changed = changed;
    this.camera = this.home = null;
    this.follows = false;
    this.listen(canvas);
  }

  // A scene with this camera of its own; what the user did to the one before stays.
  begin(home) {
    this.home = structuredClone(home);
    this.camera ??= structuredClone(home);
    this.changed();
  }

  listen(canvas) {
    const fingers = new Map();
    canvas.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, event);
      canvas.setPointerCapture(event.pointerId);
    });
    for (const over of ["pointerup", "pointercancel"]) canvas.addEventListener(over, (event) => fingers.delete(event.pointerId));
    const gap = ([a, b]) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const was = fingers.size === 2 ? gap([...fingers.values()]) : 0;
      fingers.set(event.pointerId, event);
      if (was) this.zoom(was / Math.max(1, gap([...fingers.values()])));
      else this.turn(-DRAG * (event.clientX - before.clientX), -DRAG * (event.clientY - before.clientY));
    });
    // Only where it was chosen: else the page could not be scrolled past it.
    canvas.addEventListener("wheel", (event) => {
      if (document.activeElement !== canvas) return;
      event.preventDefault();
      this.zoom(Math.exp(0.001 * event.deltaY));
    }, { passive: false });
    const keys = {
      ArrowLeft: () => this.turn(KEY, 0), ArrowRight: () => this.turn(-KEY, 0), ArrowUp: () => this.turn(0, -KEY), ArrowDown: () => this.turn(0, KEY),
      "+": () => this.zoom(NEARER), "=": () => this.zoom(NEARER), "-": () => this.zoom(1 / NEARER), 0: () => this.back(), f: () => this.toggle(),
    };
    canvas.addEventListener("keydown", (event) => {
      const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
  }

  turn(azimuth, elevation) {
    if (!this.camera) return;
    this.camera.azimuth += azimuth;
    this.camera.elevation = Math.min(89, Math.max(-89, this.camera.elevation + elevation));
    this.changed();
  }

  zoom(by) {
    if (!this.camera) return;
    this.camera.distance = Math.min(20 * this.home.distance, Math.max(0.1 * this.home.distance, by * this.camera.distance));
    this.changed();
  }

  back() {
    if (this.home) this.camera = structuredClone(this.home);
    this.changed();
  }

  toggle() {
    this.follows = !this.follows;
    if (!this.follows && this.home) this.camera.lookat = [...this.home.lookat];
    this.changed();
  }

  // Where it follows: the middle of all that moves, as if the camera hung on a soft spring.
  // Whether it is still on its way.
  goAlong(poses, passed) {
    if (!this.follows) return false;
    let far = 0;
    const count = poses.length / 7, share = 1 - Math.exp(-4 * passed);
    for (let i = 0; i < 3; i++) {
      let sum = 0;
      for (let b = 0; b < count; b++) sum += poses[7 * b + i];
      far = Math.max(far, Math.abs(sum / count - this.camera.lookat[i]));
      this.camera.lookat[i] += share * (sum / count - this.camera.lookat[i]);
    }
    return far > 1e-3 * this.camera.distance;
  }
}
