// The page: a sentence in, its translation as it grows, the figure, and all that the address names.

let latest = 0; // the number of the newest sentence: what older ones still compute is thrown away
let playing = null; // {count, timer} while the words come one by one
let shown = {}; // what is drawn, so that only what has changed is drawn again

// The address

function read() {
  const named = [...new URLSearchParams(location.hash.slice(1))].filter(([name]) => Object.hasOwn(OPENING, name));
  Object.assign(at, OPENING, Object.fromEntries(named));
  if (element("source").value !== at.s) element("source").value = at.s;
}

/* Changes what is looked at; another block or step of the tour is one that the browser's Back takes back. */
function go(changes) {
  const before = computed();
  const place = at.block + at.tour;
  Object.assign(at, changes);
  stop();
  const differs = Object.entries(at).filter(([name, value]) => value !== OPENING[name]);
  history[place === at.block + at.tour ? "replaceState" : "pushState"](null, "", "#" + new URLSearchParams(differs));
  if (computed() !== before) translateSentence();
  else draw();
}

/* Returns all that a translation depends on. */
const computed = () => [at.s, at.off, at.beam, at.alpha, at.checkpoint].join("\n");

// The sentence

/* Returns of each subword its probability, its rank, the five most probable and the most probable other one. */
function choicesOf(logits, ids) {
  return ids.map((id, t) => {
    const probabilities = softmax(logits[t]);
    const best = largest(probabilities, 5);
    const other = best.find(([token]) => token !== id);
    return { p: probabilities[id], rank: 1 + probabilities.filter(p => p > probabilities[id]).length, best,
      rival: other && { id: other[0], p: other[1] } };
  });
}

async function translateSentence() {
  const own = ++latest;
  open();
  tellWords(at.s);
  drawExamples();
  document.body.classList.add("old");
  const asTyped = sourceIds(model, at.s);
  const ids = isOff("order") ? inOtherOrder(asTyped) : asTyped;
  const asked = [at.s, at.beam, at.alpha, at.checkpoint].join("\n");
  if (ids.length === 1) {
    now = null;
    looked = {};
    element("translation").textContent = "";
    make("span", `Type a sentence, in ${SOURCE}.`, element("translation"), "none");
    draw();
    return;
  }
  if (switched().length && unchanged.asked !== asked) {
    unchanged = { asked, ...translate(model, asTyped, { ...optionsOf([]), nbest: 1 }).hypotheses[0] };
  }
  const options = optionsOf(switched());
  const running = search(model, ids, options);
  element("translation").setAttribute("aria-busy", "true");
  for (;;) {
    const { done, value } = running.next();
    if (own !== latest) return;
    if (done) {
      show(ids, options, value);
      document.body.dataset.translated = own;
      return;
    }
    if (value.alive.length) element("translation").textContent = model.tokenizer.decode(value.alive[0].ids);
    await new Promise(resolve => setTimeout(resolve)); // the page stays live
  }
}

/* Computes all that the page shows of a translation, and draws it. */
function show(ids, options, found) {
  const output = [...found.hypotheses[0].ids, EOS];
  const inputs = [BOS, ...output.slice(0, -1)];
  const { trace, logits } = forward(model, ids, inputs, options);
  const choices = choicesOf(logits, output);
  const leastSure = choices.reduce((least, { p }, t) => p < choices[least].p ? t : least, 0);
  const p = Math.exp(output.reduce((sum, id, t) => sum + logits[t][id] - logSumExp(logits[t]), 0));
  now = { ids, options, output, inputs, trace, logits, choices, leastSure, p, ...found, weights: {}, lens: {}, nearest: {}, patches: {} };
  looked = {};
  drawTranslation();
  draw();
}

/* Writes the translation; each subword is a part that can be pointed at, dotted if the model is not sure. */
function drawTranslation() {
  const root = element("translation");
  root.replaceChildren();
  root.setAttribute("aria-busy", "false");
  let text = "";
  now.output.slice(0, -1).forEach((id, t) => {
    const whole = model.tokenizer.decode(now.output.slice(0, t + 1));
    const part = make("span", whole.startsWith(text) ? whole.slice(text.length) : "", root, now.choices[t].p < 0.6 ? "unsure" : "");
    if (part.textContent.startsWith(" ")) part.before(" ");
    part.textContent = part.textContent.trimStart();
    part.dataset.places = t;
    part.addEventListener("pointerenter", () => look({ t }));
    part.addEventListener("pointerleave", () => look({}));
    part.addEventListener("click", () => pinned("pin", t));
    text = whole;
  });
  if (!root.textContent) make("span", "(empty)", root, "none");
  element("whole").textContent = `probability of just this sentence: ${share(now.p)}`;
}

// Play

function play() {
  if (playing && !calm.matches) { stop(); draw(); return; }
  const next = () => {
    const count = (playing?.count ?? 0) + 1;
    if (count > now.output.length) { stop(); draw(); return; }
    clearTimeout(playing?.timer);
    playing = { count, timer: calm.matches ? 0 : setTimeout(next, 650) }; // with reduced motion each press is a step
    tellPlay();
    drawFlow();
    light();
  };
  if (now) next();
}

function stop() {
  clearTimeout(playing?.timer);
  playing = null;
  tellPlay();
}

function tellPlay() {
  element("play").textContent = !playing ? "▶ Play" : calm.matches ? "▶ Next word" : "■ Stop";
}

// All of it

function draw() {
  drawTheme();
  drawTour();
  tellSwitches();
  document.body.classList.toggle("old", !now);
  for (const name of ["picture", "card", "tour", "beam", "footer"]) element(name).hidden = !now;
  if (now) {
    const layout = [now, element("figure").clientWidth, slim.matches, data.config.N > 2 ? layerOf() : 0, at.block && at.own].join();
    const attention = [layerOf(), at.head].join();
    const look = [now, at.theme].join();
    if (shown.now !== now || shown.layout !== layout || shown.look !== look || shown.block !== at.block) drawFigure();
    else if (shown.attention !== attention) refreshAttention();
    else { drawFlow(); light(); }
    shown = { now, layout, attention, look, block: at.block };
    drawBeam();
  }
  drawPanel();
}

/* Shows the weights of another layer or head in the figure that is there. */
function refreshAttention() {
  for (const one of element("figure").querySelectorAll(".port")) one.classList.toggle("live", one.dataset.key === `block ${CROSS(layerOf())}`);
  drawPicks(figure.g);
  glide();
}

element("source").addEventListener("input", () => go({ s: element("source").value.replace(/\n/g, " "), pin: "", word: "", other: "" }));
element("source").addEventListener("keydown", event => { if (event.key === "Enter") event.preventDefault(); });
element("play").addEventListener("click", play);
addEventListener("popstate", () => {
  const before = computed();
  stop();
  read();
  if (computed() !== before) translateSentence();
  else draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { shown = {}; draw(); });
new ResizeObserver(() => { if (now && figure && figure.g.width !== element("figure").clientWidth) draw(); }).observe(element("figure"));

read();
open();
for (const [id, text] of [["sourceName", SOURCE], ["targetName", TARGET]]) element(id).textContent = text;
[element("source").lang, element("translation").lang] = data.about.languages;
tellModel();
if (data.checkpoints.length) slider(element("training"), "checkpoint", "checkpoint of the training", [0, data.checkpoints.length, 1]);
drawTheme();
stop();
document.body.dataset.ready = "";
translateSentence();
