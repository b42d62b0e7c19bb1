// Search, filters, selection, sorting, CSV and copying. The page says all it has to say without this.
"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const make = (name, text, kind) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };
  const form = document.getElementById("filters");
  const [query, layer, full] = ["q", "layer", "full"].map((name) => form.elements[name]);
  const count = document.getElementById("count");

  // What is chosen lives in the fragment alone: #sel=l12&q=spine3. A bare #l12 (a link of the page) is a selection.
  const read = () => {
    const text = location.hash.slice(1);
    return text && !text.includes("=") ? new Map([["sel", text]]) : new Map(new URLSearchParams(text));
  };
  let now = read();
  const put = (changes, replace) => {
    for (const [name, value] of Object.entries(changes)) value ? now.set(name, value) : now.delete(name);
    const text = "#" + new URLSearchParams(Array.from(now)).toString();
    if (text !== (location.hash || "#")) replace ? location.replace(text) : (location.hash = text);
    show(); // at once; the event that follows changes nothing more
  };

  const rows = all("tbody tr");
  const words = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const marks = all("svg [data-y]");
  for (const mark of marks) words.set(mark, (mark.querySelector("title") || mark).textContent.toLowerCase());
  const fits = (element, chosen) => {
    const text = words.get(element);
    if (!chosen.words.every((word) => text.includes(word))) return false;
    const { y, s } = element.dataset;
    if (chosen.layer && y !== undefined && y !== chosen.layer) return false;
    return !(chosen.full && s !== undefined && !(Number(s) > 1.000001));
  };

  function show() {
    const chosen = {
      words: (now.get("q") || "").toLowerCase().split(/\s+/).filter(Boolean),
      layer: now.get("layer") || "",
      full: now.get("full") === "1",
    };
    if (document.activeElement !== query) query.value = now.get("q") || "";
    layer.value = chosen.layer;
    full.checked = chosen.full;
    const any = chosen.words.length > 0 || chosen.layer !== "" || chosen.full;
    let kept = 0;
    for (const row of rows) {
      if (row.dataset.l === undefined) continue; // figures of layers and jobs stay
      row.hidden = any && !fits(row, chosen);
      kept += row.hidden ? 0 : 1;
    }
    for (const mark of marks) mark.classList.toggle("dim", any && !fits(mark, chosen));
    count.textContent = any ? `${kept} rows match` : "";

    const selected = now.get("sel") || "";
    for (const card of all(".card.shown")) card.classList.remove("shown");
    for (const one of all(".on")) one.classList.remove("on");
    for (const one of all(".picking")) one.classList.remove("picking");
    const card = selected ? document.getElementById(selected) : null;
    if (!card) return;
    if (!card.classList.contains("card")) {
      card.scrollIntoView();
      return;
    }
    card.classList.add("shown");
    const path = new Set((card.dataset.path || selected).split(" "));
    for (const one of all("[data-l]")) {
      const own = one.dataset.l;
      if (!(path.has(own) || own === selected)) continue;
      one.classList.add("on");
      const drawing = one.closest("svg.fabric");
      if (drawing) drawing.classList.add("picking");
    }
  }

  document.addEventListener("click", (event) => {
    const anchor = event.target.closest("a[href^='#']");
    const row = event.target.closest("tr[data-l]");
    if (anchor) {
      event.preventDefault();
      put({ sel: anchor.getAttribute("href").slice(1) });
    } else if (row && !String(getSelection())) put({ sel: row.dataset.l });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") put({ sel: "" });
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  query.addEventListener("input", () => put({ q: query.value }, true));
  layer.addEventListener("change", () => put({ layer: layer.value }));
  full.addEventListener("change", () => put({ full: full.checked ? "1" : "" }));
  addEventListener("hashchange", () => {
    now = read();
    show();
  });

  // A cell as CSV: the plain value; text that a spreadsheet would take for a formula is led by a quote.
  const cell = (element) => {
    const value = element.dataset.v !== undefined ? element.dataset.v : element.textContent.trim();
    const tame = element.dataset.v === undefined && /^[=+\-@\t\r]/.test(value) ? "'" + value : value;
    return /[",\n\r]/.test(tame) ? '"' + tame.replaceAll('"', '""') + '"' : tame;
  };
  const save = (name, text) => {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  for (const table of all("table[data-csv]")) {
    const tools = make("div", undefined, "tools");
    const button = make("button", "CSV");
    button.title = "the rows that match, with plain values";
    button.addEventListener("click", () => {
      const lines = all("tr", table).filter((row) => !row.hidden).map((row) => all("th,td", row).map(cell).join(","));
      save(table.dataset.csv + ".csv", lines.join("\r\n") + "\r\n");
    });
    tools.append(button);
    table.parentElement.before(tools);
    all("th", table).forEach((head, place) => {
      head.title = "sort";
      let up = false;
      head.addEventListener("click", () => {
        up = !up;
        const body = table.tBodies[0];
        const value = (row) => row.cells[place].dataset.v ?? row.cells[place].textContent;
        const order = Array.from(body.rows).sort((one, two) => {
          const [a, b] = [value(one), value(two)];
          const gap = Number(a) - Number(b);
          return (Number.isNaN(gap) ? a.localeCompare(b, "en", { numeric: true }) : gap) * (up ? -1 : 1);
        });
        body.append(...order);
      });
    });
  }
  for (const block of all("pre.copy")) {
    const button = make("button", "copy");
    button.addEventListener("click", () => {
      const range = document.createRange();
      range.selectNodeContents(block);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = document.execCommand("copy") ? "copied" : "selected";
    });
    const tools = make("div", undefined, "tools");
    tools.append(button);
    block.before(tools);
  }
  form.hidden = false;
  show();
})();
