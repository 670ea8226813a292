// What a page owes to people who read it by keyboard, screen reader or with weak eyes. Gives the list of what is wrong.
() => {
  const wrong = [];
  const seen = (element) => {
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    return style.visibility !== "hidden" && style.display !== "none" && box.width > 0 && box.height > 0 && !element.closest("[hidden]");
  };
  const told = (element) => `${element.outerHTML.slice(0, 110).replace(/\s+/g, " ")}`;

  function name(element) {
    const by = element.getAttribute("aria-labelledby");
    if (by) return by.split(/\s+/).map((id) => document.getElementById(id)?.textContent || "").join(" ").trim();
    const label = element.getAttribute("aria-label");
    if (label && label.trim()) return label.trim();
    if (element.labels && element.labels.length) return [...element.labels].map((each) => each.textContent).join(" ").trim();
    if (element.tagName === "INPUT" && /^(submit|button)$/.test(element.type)) return element.value;
    const text = [...element.childNodes].map((node) => node.nodeType === Node.TEXT_NODE ? node.textContent : node.nodeType === Node.ELEMENT_NODE && node.getAttribute("aria-hidden") !== "true" ? (node.tagName === "svg" ? node.getAttribute("aria-label") || "" : name(node)) : "").join(" ");
    return text.trim() || element.getAttribute("title") || "";
  }

  // The page as a whole
  if (!document.documentElement.lang) wrong.push("the page does not say its language");
  if (!document.title.trim()) wrong.push("the page has no title");
  for (const [landmark, selector] of [["main", "main"], ["banner", "body > header"], ["navigation", "nav"]]) {
    if (document.querySelectorAll(selector).length !== 1) wrong.push(`there is not exactly one ${landmark}`);
  }
  const navigations = document.querySelectorAll("nav");
  for (const each of navigations) if (!name(each) && !each.getAttribute("aria-label")) wrong.push("a navigation has no name");
  const skip = document.querySelector("a.skip");
  if (!skip || !document.querySelector(skip.getAttribute("href"))) wrong.push("no link skips to the content");
  const headings = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")];
  if (headings.filter((each) => each.tagName === "H1").length !== 1) wrong.push("there is not exactly one h1");
  let level = 0;
  for (const heading of headings) {
    const now = Number(heading.tagName[1]);
    if (now > level + 1) wrong.push(`a heading jumps from h${level} to h${now}: ${told(heading)}`);
    if (!heading.textContent.trim()) wrong.push(`a heading is empty: ${told(heading)}`);
    level = now;
  }

  // Names, roles and references
  const ids = new Set();
  for (const element of document.querySelectorAll("[id]")) {
    if (ids.has(element.id)) wrong.push(`the id ${element.id} is there twice`);
    ids.add(element.id);
  }
  for (const element of document.querySelectorAll("[aria-labelledby], [aria-describedby]")) {
    for (const id of (element.getAttribute("aria-labelledby") || element.getAttribute("aria-describedby")).split(/\s+/)) {
      if (!ids.has(id)) wrong.push(`${id} is referred to and not there: ${told(element)}`);
    }
  }
  for (const element of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")) {
    if (!name(element)) wrong.push(`it has no name: ${told(element)}`);
  }
  for (const element of document.querySelectorAll("svg")) {
    const fine = element.getAttribute("aria-hidden") === "true" || (/^(img|group)$/.test(element.getAttribute("role") || "") && element.getAttribute("aria-label"));
    if (!fine) wrong.push(`a picture has no name: ${told(element)}`);
  }
  for (const element of document.querySelectorAll("[role=region]")) if (!name(element)) wrong.push(`a region has no name: ${told(element)}`);
  for (const element of document.querySelectorAll("[tabindex]")) if (Number(element.getAttribute("tabindex")) > 0) wrong.push(`the order of keys is changed: ${told(element)}`);
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption) wrong.push(`a table has no caption: ${told(table)}`);
    for (const cell of table.querySelectorAll("th")) {
      if (!cell.scope) wrong.push(`a head of a table has no scope: ${told(cell)}`);
      if (!cell.textContent.trim() && !cell.querySelector("svg")) wrong.push(`a head of a table is empty: ${told(cell)}`);
    }
  }
  for (const list of document.querySelectorAll("ul, ol")) {
    for (const child of list.children) if (!/^(LI|TEMPLATE)$/.test(child.tagName)) wrong.push(`a list has something else in it: ${told(child)}`);
  }
  for (const list of document.querySelectorAll("dl")) {
    for (const child of list.children) if (!/^(DT|DD|DIV)$/.test(child.tagName)) wrong.push(`a list of facts has something else in it: ${told(child)}`);
  }
  for (const element of document.querySelectorAll("div, section, pre")) {
    const style = getComputedStyle(element);
    const scrolls = /(auto|scroll)/.test(style.overflowX + style.overflowY) && (element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1);
    if (scrolls && element.tabIndex < 0) wrong.push(`it scrolls, but not by keyboard: ${told(element)}`);
  }
  for (const element of document.querySelectorAll("button, input:not([type=hidden]):not([type=checkbox]), select, nav a")) {
    const box = element.getBoundingClientRect();
    if (seen(element) && (box.height < 24 || box.width < 24)) wrong.push(`it is too small to hit: ${told(element)}`);
  }

  // Contrast
  function colour(text) {
    const parts = (text.match(/[\d.]+/g) || []).map(Number);
    return parts.length < 3 ? [0, 0, 0, 0] : [parts[0], parts[1], parts[2], parts.length > 3 ? parts[3] : 1];
  }
  function over(top, below) {
    return [0, 1, 2].map((each) => top[each] * top[3] + below[each] * (1 - top[3])).concat(1);
  }
  function behind(element) {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const found = colour(getComputedStyle(each).backgroundColor);
      if (found[3] > 0) layers.push(found);
      if (found[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  }
  function light([red, green, blue]) {
    const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  }
  function contrast(one, other) {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  }
  function opacity(element) {
    let whole = 1;
    for (let each = element; each; each = each.parentElement) whole *= Number(getComputedStyle(each).opacity);
    return whole;
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const judged = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || judged.has(element) || !seen(element) || element.closest(".unseen, .skip, option, datalist, title, script")) continue;
    judged.add(element);
    const style = getComputedStyle(element);
    let paper = behind(element);
    let ink = colour(style.color);
    if (element instanceof SVGElement) {
      ink = colour(style.fill);
      const box = element.parentElement.querySelector(".box");
      if (box) paper = over(colour(getComputedStyle(box).fill), paper);
    }
    ink = over([ink[0], ink[1], ink[2], ink[3] * opacity(element)], paper);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const found = contrast(ink, paper);
    if (found < (large ? 3 : 4.5)) wrong.push(`contrast ${found.toFixed(2)}: ${told(element)}`);
  }
  for (const element of document.querySelectorAll("input:not([type=hidden]):not([type=checkbox]), select, button")) {
    if (!seen(element)) continue;
    const found = contrast(over(colour(getComputedStyle(element).borderTopColor), behind(element.parentElement)), behind(element.parentElement));
    if (found < 3 && contrast(behind(element), behind(element.parentElement)) < 3) wrong.push(`its edge has contrast ${found.toFixed(2)}: ${told(element)}`);
  }
  return wrong;
}
