// Looks again at what a page shows, every few seconds while the page is visible, and keeps a bounded number of samples.

import { element, say } from "./dom.js";

const LOOK_MS = 5000;

/** Return a check box that is ticked; while it is, `look` is asked for a sample, and `draw` gets the last `most` of them. */
export function watched(label, first, look, draw, most, signal) {
  const samples = [sampleOf(first)];
  let timer = null;
  const box = element("input", { type: "checkbox", name: "watch", checked: true, onchange: () => plan() });

  function plan() {
    clearTimeout(timer);
    if (box.checked && !signal.aborted) timer = setTimeout(again, LOOK_MS);
  }

  async function again() {
    try {
      if (!document.hidden) {
        samples.push(sampleOf(await look()));
        samples.splice(0, Math.max(0, samples.length - most));
        if (!signal.aborted) draw(samples);
      }
    } catch (error) {
      if (!signal.aborted) say(error.message);
    }
    plan();
  }

  signal.addEventListener("abort", () => clearTimeout(timer));
  plan();
  draw(samples);
  return element("label", { class: "inline" }, box, label);
}

function sampleOf(what) {
  return { at: Date.now(), what };
}

/** Return the change of a number a second, between the last two samples; null of one sample. */
export function rateOf(samples, numberOf) {
  if (samples.length < 2) return null;
  const [before, now] = samples.slice(-2);
  const [was, is] = [numberOf(before.what), numberOf(now.what)];
  if (was === undefined || is === undefined || now.at <= before.at) return null;
  return ((is - was) * 1000) / (now.at - before.at);
}
