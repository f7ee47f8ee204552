// What the parts of the page share: what is looked at, what was computed for it, and how names and numbers are written.

const data = JSON.parse(document.getElementById("data").textContent);
const element = id => document.getElementById(id);
const range = count => [...Array(count).keys()];
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const slim = matchMedia("(max-width: 1080px)");

const models = []; // the checkpoints, each opened when it is first looked at
let model;
let now = null; // {ids, output, inputs, trace, logits, choices, hypotheses, steps, ..} of the sentence, once it is translated
let looked = {}; // {t} or {s}: the target or source word that is pointed at

// The English words that completions offer: without a list, those that are one piece of the vocabulary.
const COMPLETIONS = data.words.length ? data.words
  : (data.tokenizer.source ?? data.tokenizer.target).pieces.filter(piece => /^▁\p{L}{2}/u.test(piece)).map(piece => piece.slice(1));

// What is chosen, all of it texts: the address has what differs from this. `pin` is a target word, `word` a source word;
// `block` is opened, with its head `own` if it is self-attention; `fold` is what is unfolded in it.
const OPENING = {
  s: data.source, layer: String(data.config.N - 1), head: "mean", block: "", own: "mean", fold: "", part: "", query: "2",
  pin: "", word: "", other: "", off: "", pos: "3", k: "2", tour: "", theme: "auto",
  checkpoint: String(data.checkpoints.length), grown: "",
  beam: String(data.decoding.beam), alpha: String(data.decoding.alpha),
};
const at = {};

/* Opens the checkpoint that is chosen; after the last one comes the run's own choice of parameters. */
function open() {
  const n = Math.min(at.checkpoint, data.checkpoints.length) || 0;
  models[n] ??= openModel(data, data.checkpoints[n] && n);
  model = models[n];
}

/* Returns a number of `at`, from 0 and below a count. */
const chosenOf = (name, count) => Math.max(0, Math.min(Math.trunc(at[name]) || 0, count - 1));
const layerOf = () => chosenOf("layer", data.config.N);

// Blocks are named as the activations that they compute

const SELF = (stack, n) => `${stack}/layer_${n}/self_attention`;
const CROSS = n => `decoder/layer_${n}/cross_attention`;
const FEED = (stack, n) => `${stack}/layer_${n}/feed_forward`;
const PATHS = { encoder: n => SELF("encoder", n), decoder: n => SELF("decoder", n), cross: CROSS };
const stackOf = block => block.startsWith("encoder") ? "encoder" : "decoder";
const kindOf = block => block.endsWith("cross_attention") ? "cross" : stackOf(block);
const colourOf = block => kindOf(block);
const isAttention = block => block.endsWith("_attention");
const layerIn = block => Number(block.match(/layer_(\d+)/)?.[1] ?? -1);

/* Returns the head that is chosen of a block: its number, or "mean". */
function headIn(block) {
  const chosen = kindOf(block) === "cross" ? at.head : block === at.block ? at.own : "mean";
  return chosen === "mean" ? "mean" : Math.max(0, Math.min(Math.trunc(chosen) || 0, data.config.h - 1));
}

/* Returns the weights [query][key] of a block, of one head or their mean. */
function weightsOf(block, h = headIn(block)) {
  const key = `${block} ${h}`;
  now.weights[key] ??= attentionOf(now.trace[`${block}/weights`], h);
  return now.weights[key];
}

function attentionOf(activation, h) {
  const [, count, width] = activation.shape;
  if (h !== "mean") return activation.rows.map((_, t) => head(activation, t, h));
  return activation.rows.map(row =>
    Float32Array.from({ length: width }, (_, s) => range(count).reduce((sum, n) => sum + row[n * width + s], 0) / count));
}

// Names

const label = id => model.tokenizer.label(id);

/* Returns a subword as the figure has it. */
const wordOf = id => id === EOS ? "end" : id === BOS ? "start" : label(id).trim();
const isMark = id => id === EOS || id === BOS;

/* Returns whether a subword goes on with the word before it. */
const isTied = id => !isMark(id) && /^[\p{L}\p{N}]/u.test(model.tokenizer.pieces[id]);

/* Returns the names of a block's queries and keys. */
function sidesOf(block) {
  const source = now.ids.map(wordOf);
  const inputs = now.inputs.map(wordOf);
  if (stackOf(block) === "encoder") return { queries: source, keys: source };
  return { queries: now.output.map(wordOf), keys: kindOf(block) === "cross" ? source : inputs };
}

/* Returns a language's English name. */
const named = code => {
  try { return new Intl.DisplayNames(["en"], { type: "language" }).of(code); } catch { return code; }
};
const [SOURCE, TARGET] = data.about.languages.map((code, side) => code ? named(code) : ["Source", "Translation"][side]);

const short = value => value === -Infinity ? "−∞"
  : (Math.abs(value) < 9.995 ? value.toFixed(2) : value.toFixed(1)).replace("-0.00", "0.00").replace("-", "−");
const share = p => p > 0 && p < 0.0005 ? "< 0.1\u00a0%" : `${p < 0.0995 ? (100 * p).toFixed(1) : Math.round(100 * p)}\u00a0%`;
const exact = p => p > 0 && p < 0.0005 ? "< 0.1 %" : (100 * p).toFixed(1) + " %";

/* Makes a button that does something; after the page is drawn again, the focus returns to what has the same key. */
function button(root, text, act, key = text, name = "") {
  const one = make("button", text, root, name);
  one.type = "button";
  one.dataset.key = key;
  one.addEventListener("click", act);
  return one;
}

/* Makes a slider over something of `at`. */
function slider(root, name, text, [first, last, step], value = at[name]) {
  const box = make("label", text, root, "slider");
  const input = make("input", undefined, box);
  Object.assign(input, { type: "range", min: first, max: last, step, value });
  input.dataset.key = name;
  const told = make("output", input.value, box);
  input.addEventListener("input", () => { told.textContent = input.value; go({ [name]: input.value }); });
}

/* Makes small radio buttons for one of few values, or a menu. */
function choice(root, text, values, chosen, act, isMenu = false) {
  const box = make("fieldset", undefined, root, "choice");
  make("legend", text, box);
  if (isMenu) {
    const select = make("select", undefined, box);
    select.setAttribute("aria-label", text);
    select.dataset.key = text;
    for (const [value, told] of values) make("option", told, select).value = value;
    select.value = chosen;
    select.addEventListener("change", () => act(select.value));
    return;
  }
  for (const [value, told] of values) {
    const one = make("label", undefined, box);
    const input = make("input", undefined, one);
    Object.assign(input, { type: "radio", name: text, value, checked: String(value) === String(chosen) });
    input.dataset.key = `${text} ${value}`;
    input.addEventListener("change", () => act(input.value));
    make("span", told, one);
  }
}

/* Draws something again, and keeps the focus where it was. */
function redrawn(root, draw) {
  const key = root.contains(document.activeElement) && document.activeElement.dataset.key;
  root.replaceChildren();
  draw();
  if (key) root.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

/* Draws bars: rows are [name, share, whether it is the one written]. */
function bars(root, rows, name) {
  const list = make("dl", undefined, root, `bars ${name}`);
  for (const [text, p, isOwn] of rows) {
    const row = make("div", undefined, list, isOwn ? "own" : "");
    make("dt", text, row);
    make("i", undefined, row).style.width = `${100 * p}%`;
    make("dd", share(p), row);
  }
}

/* Makes a part of the opened block that can be unfolded; what is in it is drawn only then. */
function fold(root, name, text, draw) {
  const details = make("details", undefined, root);
  make("summary", text, details).dataset.key = `fold ${name}`;
  details.open = at.fold === name;
  if (details.open) draw(details);
  details.addEventListener("toggle", () => {
    if (details.open !== (at.fold === name)) go({ fold: details.open ? name : "" });
  });
}
