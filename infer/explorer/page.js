// The page: a sentence in, its subwords, its translation as it grows, and the view of it that the address names.

let latest = 0; // the number of the newest sentence: what older ones still compute is thrown away
let refreshTraining = () => {}; // brings the slider over checkpoints up to date, if there are any
let drawn = ""; // the view whose controls are there
const redrawn = []; // brings each control up to date
const KNOWN = new Set(data.words.map(word => word.toLowerCase()));

// The address

function read() {
  Object.assign(at, OPENING, Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  if (!Object.hasOwn(VIEWS, at.view)) at.view = OPENING.view;
  if (element("source").value !== at.s) element("source").value = at.s;
}

/* Changes what is looked at; another view is a step that the browser's Back takes back. */
function go(changes) {
  const before = computed();
  const view = at.view;
  Object.assign(at, changes);
  const differs = Object.entries(at).filter(([name, value]) => value !== OPENING[name]);
  history[view === at.view ? "replaceState" : "pushState"](null, "", "#" + new URLSearchParams(differs));
  if (computed() !== before) translateSentence();
  else drawView();
}

/* Returns all that a translation depends on; a head only if a switch is about it. */
const computed = () => [at.s, at.off, at.beam, at.alpha, at.checkpoint,
  ...isOff("head") || isOff("only") ? [kindOf(), layerOf(), headOf()] : []].join("\n");

/* Returns the engine's options, with those of the switches if they count. */
function optionsOf(switched) {
  const options = { beam: chosenOf("beam", 9) || 1, alpha: +at.alpha || 0 };
  for (const name of switched) Object.assign(options, SWITCHES[name][1]());
  return options;
}

/* Returns the words in another order, if they have one. */
function inOtherOrder(ids) {
  for (let seed = 1; seed < 20; seed++) {
    const other = shuffled(model, ids, seed);
    if (other.join() !== ids.join()) return other;
  }
  return ids;
}

// The sentence

/* Completes the last word typed. */
function complete(text) {
  const [, before, word] = text.match(/^(.*?)([^\s]*)$/s);
  const capital = /^\p{Lu}/u.test(word);
  const found = !word ? [] : COMPLETIONS.map(one => capital ? one[0].toUpperCase() + one.slice(1) : one)
    .filter(one => one.startsWith(word) && one !== word).slice(0, 8);
  element("completions").replaceChildren();
  for (const one of found) make("option", undefined, element("completions")).value = before + one;
}

/* Says which words were split, as the vocabulary has them only in parts. */
function tellSplit(text, ids) {
  element("subwords").replaceChildren();
  for (const id of ids.slice(0, -1)) {
    make("span", label(id), element("subwords"), model.tokenizer.kinds[id] === "byte" ? "byte" : "");
  }
  const words = model.tokenizer.normalise(text).split(/[\s,.?!;:]+/).filter(Boolean);
  const split = words.filter(word => model.tokenizer.encode(word).length > 1);
  const unknown = data.words.length ? words.filter(word => !KNOWN.has(word.toLowerCase())) : [];
  const listed = (told, list) => list.length ? `${told}: ${[...new Set(list)].join(", ")}. ` : "";
  element("unknown").textContent = listed("No piece of the vocabulary, so it is split", split)
    + listed("Not in the sentences that it has learnt from, so expect nonsense", unknown);
}

// The translation

/* Returns the probability, the rank and the best alternatives of each token, as viewer.js reads them. */
function choicesOf(logits, ids) {
  return ids.map((id, t) => {
    const probabilities = softmax(logits[t]);
    const best = largest(probabilities, 5).map(([token, p]) => [label(token), 1000 * p]);
    const rank = 1 + probabilities.filter(p => p > probabilities[id]).length;
    return { probability: 1000 * probabilities[id], rank, best };
  });
}

const logProb = (logits, ids) => ids.reduce((sum, id, t) => sum + logits[t][id] - logSumExp(logits[t]), 0);

/* Shows the translation as far as it goes, with the probability of each subword. */
function grow(ids, logits) {
  element("translation").textContent = model.tokenizer.decode(ids);
  element("whole").textContent = logits ? `p of the whole translation: ${share(Math.exp(logProb(logits, ids)))}` : "";
  element("outputs").replaceChildren();
  ids.forEach((id, t) => {
    const part = make("span", label(id), element("outputs"));
    make("small", logits ? share(softmax(logits[t])[id]) : "", part);
  });
}

async function translateSentence() {
  const own = ++latest;
  open();
  element("about").textContent = `Every number on this page is computed here, with the parameters of step ${model.step}.`;
  complete(at.s);
  const switched = Object.keys(SWITCHES).filter(isOff);
  const asTyped = sourceIds(model, at.s);
  const ids = isOff("order") ? inOtherOrder(asTyped) : asTyped;
  tellSplit(at.s, ids);
  tellSwitches(switched, asTyped);
  if (ids.length === 1) {
    now = null;
    grow([]);
    drawView();
    return;
  }
  const options = optionsOf(switched);
  const running = search(model, ids, options);
  element("translation").setAttribute("aria-busy", "true");
  for (;;) {
    const { done, value } = running.next();
    if (own !== latest) return;
    if (done) {
      const output = [...value.hypotheses[0].ids, EOS];
      const inputs = [BOS, ...output.slice(0, -1)];
      const { trace, logits } = forward(model, ids, inputs, options);
      now = { ids, options, output, inputs, trace, logits, choices: choicesOf(logits, output), ...value };
      grow(output, logits);
      element("translation").setAttribute("aria-busy", "false");
      drawView();
      document.body.dataset.translated = own;
      return;
    }
    if (value.alive.length) grow(value.alive[0].ids);
    await new Promise(resolve => setTimeout(resolve)); // the page stays live
  }
}

// The switches

let unchanged = {}; // the last sentence, and how the model translates it with nothing changed

/* Says what is changed, and how the model translates otherwise. */
function tellSwitches(switched, ids) {
  const names = switched.map(name => SWITCHES[name][0]());
  const asked = [at.s, at.beam, at.alpha, at.checkpoint].join("\n");
  if (switched.length && ids.length > 1 && unchanged.asked !== asked) {
    unchanged = { asked, ...translate(model, ids, optionsOf([])).hypotheses[0] };
  }
  element("changed").textContent = switched.length && ids.length > 1
    ? `Changed: ${names.join("; ")}. With nothing changed: “${unchanged.text}”, p ${share(Math.exp(unchanged.log_prob))}` : "";
  for (const box of element("switches").querySelectorAll("input")) box.checked = switched.includes(box.value);
}

for (const [name, text] of Object.entries({ scale: "no division by √d_k", mask: "no mask", positions: "no positions",
  order: "shuffle the words", head: "this head out", only: "this head only" })) {
  const box = make("label", undefined, element("switches"));
  const input = make("input", undefined, box);
  input.type = "checkbox";
  input.value = name;
  make("span", text, box);
  input.addEventListener("change", () => {
    const other = { head: "only", only: "head" }[name]; // a head cannot be out and alone
    const others = at.off.split(",").filter(one => one && one !== name && !(input.checked && one === other));
    go({ off: [...others, ...input.checked ? [name] : []].join(",") });
  });
}

// The view

function control(root, name, { text, options, range, placeholder, value = () => at[name] }) {
  const box = make("label", text, root);
  if (options) {
    const select = make("select", undefined, box);
    select.addEventListener("change", () => go({ [name]: select.value }));
    return () => {
      select.replaceChildren();
      for (const [value, told] of options()) make("option", told, select).value = value;
      select.value = at[name];
      if (select.selectedIndex < 0) select.selectedIndex = 0;
    };
  }
  const input = make("input", undefined, box);
  if (!range) {
    input.addEventListener("change", () => go({ [name]: input.value }));
    return () => {
      input.value = at[name];
      input.placeholder = placeholder();
    };
  }
  input.type = "range";
  const told = make("output", "", box);
  input.addEventListener("input", () => go({ [name]: input.value }));
  return () => {
    [input.min, input.max, input.step] = range();
    input.value = value();
    told.textContent = input.value;
  };
}

function drawView() {
  drawTour();
  refreshTraining();
  for (const link of element("views").children) {
    link.href = "#" + new URLSearchParams({ ...at, view: link.dataset.view });
    link.setAttribute("aria-current", link.dataset.view === at.view ? "page" : "false");
  }
  const view = VIEWS[at.view];
  const root = element("view");
  const key = document.activeElement?.dataset.key;
  element("attention").hidden = at.view !== "heads" || !now;
  if (drawn !== at.view) {
    element("controls").replaceChildren();
    redrawn.splice(0, Infinity, ...Object.entries(view.controls ?? {})
      .map(([name, one]) => control(element("controls"), name, one)));
    drawn = at.view;
  }
  root.replaceChildren();
  if (!now) return;
  for (const refresh of redrawn) refresh();
  make("h2", view.title, root);
  view.draw(root);
  if (key) root.querySelector(`[data-key="${key}"]`)?.focus({ preventScroll: true });
}

if (data.checkpoints.length) {
  refreshTraining = control(element("training"), "checkpoint", { text: "checkpoint of the training", range: () => [0, data.checkpoints.length, 1] });
}
for (const [name, { title }] of Object.entries(VIEWS)) {
  const link = make("a", title, element("views"));
  link.dataset.view = name;
  link.addEventListener("click", event => { event.preventDefault(); go({ view: name }); });
}
element("source").addEventListener("input", () => go({ s: element("source").value }));
addEventListener("popstate", () => { read(); translateSentence(); });
read();
drawView(); // all but the numbers, so that nothing moves when they come
document.body.dataset.ready = "";
translateSentence();
