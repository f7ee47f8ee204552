// What is looked at: the newest word while they come one by one, else what is pointed at, or pinned.

function lookedAt() {
  const key = playing ? `t${playing - 1}` : looked || at.pin;
  const word = [...figure.sources, ...figure.targets].find(one => one.dataset.key === key);
  return word ? { [key[0]]: Number(key.slice(1)) } : {};
}

// Only what is looked at is drawn again, over all else, which fades.
function light() {
  const { t, s } = lookedAt();
  const { weights, sources, targets } = figure;
  const isTarget = t !== undefined;
  const count = playing || now.output.length; // of the words that are there
  // A target word's part of the encoder are the source words that it looks at.
  const near = sources.map((_, n) => isTarget ? weights[t][n] : Number(n === s));
  const strong = near.map((weight, n) => weight >= 0.1 ? `.encoder[data-s="${n}"]` : "i");
  const parts = playing ? [".encoder", ...range(count).map(n => `[data-t="${n}"]`)]
    : isTarget ? [`[data-t="${t}"]`, ...strong] : [`[data-s="${s}"]`];
  const lit = [...element("flow").querySelectorAll(parts)].map(one => one.cloneNode());
  element("lit").replaceChildren(...lit);
  sources.forEach((one, n) => {
    one.classList.toggle("on", near[n] >= 0.1);
    one.dataset.share = isTarget && near[n] >= 0.05 ? share(near[n]) : "";
  });
  for (const one of document.querySelectorAll("span[data-t]")) {
    const n = Number(one.dataset.t);
    one.classList.toggle("here", n === t);
    one.classList.toggle("on", n === t || weights[n][s] >= 0.1);
    one.classList.toggle("later", n >= count);
    one.classList.toggle("unread", n > (t ?? -1));
  }
  for (const one of [...sources, ...targets]) one.ariaSelected = one.dataset.key === at.pin;
  document.body.className = playing ? "playing looked" : isTarget || s !== undefined ? "looked" : "";
  drawCard();
}

// A ribbon is its target word's.
function wordAt(target) {
  const { t, s } = target.closest?.("[data-t], [data-s]")?.dataset ?? {};
  return t ? `t${t}` : s ? `s${s}` : "";
}

function follow({ target }) {
  const word = wordAt(target);
  if (!now || playing || word === looked) return;
  looked = word;
  light();
}
addEventListener("pointerover", follow);
addEventListener("focusin", follow);

function pin({ target }) {
  const word = wordAt(target);
  if (word) go({ pin: at.pin === word ? "" : word });
}
for (const id of ["figure", "translation"]) element(id).addEventListener("click", pin);

// Up and down among the words of a side, and to the other side as the attention leads.
element("figure").addEventListener("keydown", event => {
  const { key, target } = event;
  if (target.role !== "option") return;
  const { t, s } = target.dataset;
  const { sources, targets, weights } = figure;
  const row = t ? weights[t] : weights.map(line => line[s]);
  const across = (t ? sources : targets)[largest(row, 1)[0][0]];
  const { nextSibling, previousSibling } = target;
  const next = { ArrowDown: nextSibling, ArrowUp: previousSibling, [t ? "ArrowLeft" : "ArrowRight"]: across }[key];
  if (key === "Enter" || key === " ") pin(event);
  else if (key === "Escape") go({ pin: "" });
  else if (!next) return;
  event.preventDefault();
  for (const one of next?.parentElement.children ?? []) one.tabIndex = one === next ? 0 : -1;
  next?.focus();
});
