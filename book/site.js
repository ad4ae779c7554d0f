// Keyboard access to the parts of a page that scroll (wide tables and blocks of code), and to the button of the table of contents; a name for the search.
'use strict';

(() => {
  const heading = (element) => {
    let title = '';
    for (const found of document.querySelectorAll('main h1, main h2, main h3')) {
      if (found.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING) title = found.textContent;
    }
    return title;
  };

  // An element that is wider than its box can be focused, and then scrolled with the arrow keys. Others are no stops of the keyboard.
  const update = () => {
    for (const element of document.querySelectorAll('main .table-wrapper, main pre > code')) {
      if (element.scrollWidth > element.clientWidth) {
        element.tabIndex = 0;
        element.setAttribute('role', 'group');
        element.setAttribute('aria-label', `${element.tagName === 'CODE' ? 'Code' : 'Table'}: ${heading(element)}`);
      } else if (element.hasAttribute('aria-label')) {
        for (const name of ['tabindex', 'role', 'aria-label']) element.removeAttribute(name);
      }
    }
  };

  // mdBook's button is the label of a hidden checkbox, which no key reaches.
  const toggle = document.getElementById('mdbook-sidebar-toggle');
  toggle.tabIndex = 0;
  toggle.setAttribute('role', 'button');
  toggle.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    toggle.click();
  });

  document.getElementById('mdbook-searchbar').setAttribute('aria-label', 'Search');

  window.addEventListener('resize', update);
  window.addEventListener('load', update);
  update();
})();
