// The page: a sentence in, its translation as it grows, and all that the address names.

let latest = 0; // the number of the newest sentence: older ones are given up
let timer = 0; // of the next word while they come one by one
let drawn = "";

// Another block is one that the browser's Back takes back.
function go(changes) {
  const { block = at.block } = changes;
  const differs = Object.entries({ ...at, ...changes }).filter(([name, value]) => value !== OPENING[name]);
  history[block === at.block ? "replaceState" : "pushState"](null, "", `#${new URLSearchParams(differs)}`);
  read();
}

function read() {
  const before = { ...at };
  const named = [...new URLSearchParams(location.hash.slice(1))].filter(([name]) => Object.hasOwn(OPENING, name));
  Object.assign(at, OPENING, Object.fromEntries(named));
  play(0);
  if (["s", "off", "beam", "alpha"].some(name => at[name] !== before[name])) translateSentence();
  else draw();
}

const type = (s, changes) => go({ s, pin: "", ...changes });

async function translateSentence() {
  const own = ++latest;
  if (element("source").value !== at.s) element("source").value = at.s;
  tellWords(at.s);
  drawExamples();
  element("main").classList.add("old");
  if (!at.s.trim()) {
    now = null;
    emptied("translation").textContent = `Type a sentence, in ${SOURCE}.`;
    draw();
    return;
  }
  const typed = sourceIds(model, at.s);
  const names = switched();
  const ids = names.includes("order") ? reversed(typed) : typed;
  const options = optionsOf(names);
  const unchanged = names.length ? translate(model, typed, optionsOf([]))[0] : null;
  let found;
  for (found of search(model, ids, options)) {
    element("translation").textContent = found.alive[0]?.text;
    await new Promise(resolve => setTimeout(resolve)); // the page stays live
    if (own !== latest) return;
  }
  show(ids, { ...found, options, unchanged });
  document.body.dataset.translated = own;
}

function show(ids, found) {
  const [{ ids: output, text, log_prob }] = found.hypotheses;
  const inputs = [BOS, ...output.slice(0, -1)];
  const trace = forward(model, ids, inputs, found.options);
  const lens = logitLens(model, trace["decoder/layer_0"]);
  const choices = output.map((id, t) => {
    const probabilities = softmax(trace.logits[t]);
    const best = largest(probabilities, 5);
    const rival = best.find(([other]) => other !== id);
    return { p: probabilities[id], best, rival, lens: largest(softmax(lens[t]), 1)[0] };
  });
  const [[leastSure]] = largest(choices.map(({ p }) => -p), 1);
  const named = (side, vocabulary) => side.map(id => wordOf(id, vocabulary));
  now = { ...found, ids, output, text, trace, choices, leastSure,
    source: named(ids, model.source), target: named(output), read: named(inputs) };
  looked = "";
  element("whole").textContent = `probability of just this sentence: ${share(Math.exp(log_prob))}`;
  writeTranslation(emptied("translation"));
  draw();
}

function writeTranslation(root) {
  let text = "";
  now.output.slice(0, -1).forEach((id, t) => {
    const whole = model.target.decode(now.output.slice(0, t + 1));
    const added = whole.startsWith(text) ? whole.slice(text.length) : "";
    if (added.startsWith(" ")) root.append(" ");
    make(now.choices[t].p < 0.6 ? "span.unsure" : "span", added.trimStart(), root, { "data-t": t });
    text = whole;
  });
}

// So many words are there, and then one more after another; with reduced motion each press is a step.
function play(count) {
  clearTimeout(timer);
  playing = count > (now?.output.length ?? 0) ? 0 : count;
  if (playing && !calm.matches) timer = setTimeout(() => play(playing + 1), 650);
  element("play").textContent = !playing ? "▶ Play" : calm.matches ? "▶ Next word" : "■ Stop";
  if (now) light();
}

function draw() {
  const { key } = document.activeElement.dataset;
  element("main").classList.toggle("old", !now);
  for (const name of ["figure", "card", "tour", "beam", "footer"]) element(name).hidden = !now;
  if (now) {
    const depends = [latest, element("figure").clientWidth, slim.matches, N > 2 ? at.layer : ""].join();
    if (depends !== drawn) drawFigure();
    drawn = depends;
    drawFlow();
    light();
    drawBeam();
  }
  drawChange();
  drawMap();
  drawPanel();
  // What is drawn again keeps the focus.
  if (key && document.activeElement.dataset.key !== key) document.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

element("sourceName").textContent = SOURCE;
element("targetName").textContent = TARGET;
for (const [tag, text] of data.about.told) make(tag, text, element("about"));
element("footer").textContent = data.about.numbers;

openModel(data).then(opened => {
  model = opened;
  element("source").addEventListener("input", ({ target }) => type(target.value.replace(/\n/g, " ")));
  element("play").addEventListener("click", () => play(playing && !calm.matches ? 0 : playing + 1));
  addEventListener("popstate", read);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(draw).observe(element("about"));
  read();
});
