// What came of one agent, on a time line of its own: a little behind, so that it moves evenly although it comes in lumps.

const BEHIND_S = 0.7, JUMP_S = 3, STARVED_S = 2;
// A batch that follows no other is as long as this many pictures a second make it.
const FPS = 30;
const LONGEST_S = 1.5, MOST_FRAMES = 900;
// Nothing that is drawn lies farther away (viewer/live/scenes.py says the same).
const REACH = 1e5;

export class Playback {
  constructor() {
    this.clear();
  }

  clear() {
    this.frames = []; // {at, batch, poses} by time; poses Float32Array [B × 7], null: nothing is drawn of it
    this.head = null; // where we are, by the agent's clock, s
    this.cameAt = 0; // s of our own clock
  }

  // `batch`: a header, whose `at` is that of its newest picture; `body`: a DataView. `now`: s of performance.now().
  add(batch, body, now) {
    const last = this.frames.at(-1), count = batch.frames ?? 1;
    const follows = last && batch.at > last.at && batch.at - last.at < LONGEST_S;
    if (last && batch.at <= last.at) this.clear();
    const from = follows ? last.at : batch.at - count / FPS;
    for (let k = 0; k < count; k++)
      this.frames.push({ at: from + ((k + 1) / count) * (batch.at - from), batch, poses: batch.frames ? read(batch, body, k) : null });
    this.frames.splice(0, this.frames.length - MOST_FRAMES);
    this.cameAt = now;
  }

  // What is to be seen after `passed` seconds more: {batch, poses, at, isLate, moves}; null: nothing yet.
  step(passed, now) {
    const newest = this.frames.at(-1), isLate = now - this.cameAt > STARVED_S;
    if (!newest) return null;
    if (this.head === null || newest.at - this.head > JUMP_S) this.head = Math.max(this.frames[0].at, newest.at - BEHIND_S);
    const haste = Math.min(1.4, Math.max(0.6, 1 + 0.6 * (newest.at - this.head - BEHIND_S)));
    this.head = Math.min(newest.at, this.head + passed * haste);
    let k = this.frames.findIndex((frame) => frame.at > this.head);
    k = k < 0 ? this.frames.length - 1 : Math.max(0, k - 1);
    if (k > 60) k -= this.frames.splice(0, k - 30).length;
    const here = this.frames[k], next = this.frames[k + 1];
    const isOne = next?.poses && here.poses && next.batch.episode === here.batch.episode && next.batch.scene === here.batch.scene;
    const share = isOne ? Math.min(1, Math.max(0, (this.head - here.at) / (next.at - here.at || 1))) : 0;
    const poses = share > 0 ? between(here.poses, next.poses, share) : here.poses;
    return { batch: here.batch, poses, at: this.head, isLate, moves: !isLate || this.head < newest.at };
  }
}

// Poses [B × 7] of picture k: place (m) and rotation. Errors: where a number of it is none.
function read({ place, unit, bodies }, body, k) {
  const poses = new Float32Array(7 * bodies);
  for (let b = 0; b < bodies; b++) {
    const own = 14 * (k * bodies + b);
    for (let i = 0; i < 3; i++) poses[7 * b + i] = place[i] + unit * body.getInt16(own + 2 * i, true);
    for (let i = 3; i < 7; i++) poses[7 * b + i] = body.getInt16(own + 2 * i, true) / 32767;
    normalise(poses, 7 * b + 3);
  }
  if (!poses.every((one) => Math.abs(one) <= REACH)) throw new RangeError("a body has no position");
  return poses;
}

// Of no length at all: not turned.
function normalise(poses, at) {
  const length = Math.hypot(poses[at], poses[at + 1], poses[at + 2], poses[at + 3]);
  if (length < 1e-3) poses.set([1, 0, 0, 0], at);
  else for (let i = 0; i < 4; i++) poses[at + i] /= length;
}

// The straight way between two rotations, made one again: of pictures 33 ms apart nobody sees more.
function between(one, other, share) {
  const found = new Float32Array(one.length);
  for (let b = 0; b < one.length; b += 7) {
    let inner = 0;
    for (let i = b + 3; i < b + 7; i++) inner += one[i] * other[i];
    for (let i = b; i < b + 7; i++) found[i] = (1 - share) * one[i] + share * (inner < 0 && i > b + 2 ? -other[i] : other[i]);
    normalise(found, b + 3);
  }
  return found;
}
