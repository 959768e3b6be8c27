"Markdown as two engines render it, one of GitHub's dialect and the one of nbconvert: which tags come out."
from html.parser import HTMLParser

import mistune
from markdown_it import MarkdownIt

# The tags of our pages; links are not among them.
OURS = {'p', 'h1', 'h2', 'h3', 'strong', 'em', 'code', 'pre', 'ul', 'li', 'hr', 'br', 'table', 'thead', 'tbody', 'tr',
        'th', 'td', 'img'}
ENGINES = {
    'markdown-it': MarkdownIt('commonmark', {'html': True}).enable(['table', 'strikethrough']).render,
    'mistune': mistune.create_markdown(escape=False, plugins=[
        'table', 'url', 'strikethrough', 'footnotes', 'task_lists', 'math', 'superscript', 'abbr', 'def_list'])}


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found, self.text = [], ''

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        own = tag in OURS and not any(name.startswith('on') for name in known)
        if tag == 'img': own = own and known['src'].endswith('.png') and '://' not in known['src']
        if not own: self.found.append((tag, known))

    def handle_comment(self, data):
        if 'written by evolora' not in data: self.found.append(('comment', data))

    def handle_decl(self, decl): self.found.append(('declaration', decl))
    def handle_data(self, data): self.text += data


def strange(text):
    "The tags that the engines make of a page and that are not ours, with the engine"
    found = []
    for engine, render in ENGINES.items():
        page = _Tags()
        page.feed(render(text))
        page.close()
        found += [(engine, *one) for one in page.found]
    return found


def shown(text, engine='markdown-it'):
    "The words that a reader sees"
    page = _Tags()
    page.feed(ENGINES[engine](text))
    page.close()
    return page.text.strip()


# Names that try to be links or HTML, without a slash, so that a folder can have them.
NAMES = ['[x](javascript:alert(1))', '\\](javascript:alert(1)) [x', '\\\\[x\\\\](javascript:alert(1))',
         '[x]: http:evil.example',
         '![x](http:evil.example)', '<a href=javascript:alert(1)>x', '&lt;a href=x&gt;', '&#91;x&#93;(javascript:x)',
         '`[x](javascript:y)`', '``` [x](y)', '[x][y] [y]: z', '[^1]', '$\\href{javascript:x}{y}$',
         '\\(\\href{x}{y}\\)',
         '<!-- x -->', '<![CDATA[x]]>', '<?php x?>', '| [x](y) |', '# [x](y)', '- [ ] [x](y)', '1. [x](y)', '> [x](y)',
         '*[x]: y', '**[x](y)**', '~~[x](y)~~', '^[x](y)^', 'www.evil.example', 'me@evil.example', '---', '===', ': x']
TEXTS = [*NAMES, 'https://evil.example', '<https://evil.example>', '[x](<https://evil.example>)',
         'ftp://evil.example/x',
         '</td></table><script>alert(1)</script>', '<img src=x onerror=alert(1)>', 'HTTPS://WWW.evil.example',
         '[x]\n(javascript:y)', '\n\n[x]: https://evil.example\n\n[x]', '    [x](y)']
