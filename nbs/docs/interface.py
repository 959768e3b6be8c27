"""Pages of every public name: a page a room, from the text of its modules alone, so that nothing heavy is imported.

Of each: its signature, its first sentence (what it returns, shapes, units, errors), what the comments beside its
arguments say, and where it is written: the lesson, and the line of the module.
"""
import ast
import copy
import io
import tokenize
from functools import cache

from reference import plain, sources, trees

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def public(module: str) -> list[str]:
    "The names of a module, as `__all__` has them"
    found = [n.value for n in trees()[module].body
             if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == '__all__']
    return ast.literal_eval(found[0]) if found else []


def comments(module: str) -> dict[int, str]:
    "Line → the comment at its end"
    tokens = tokenize.generate_tokens(io.StringIO(sources()[module][1]).readline)
    return {t.start[0]: t.string.lstrip('# ') for t in tokens
            if t.type == tokenize.COMMENT and t.line.strip() != t.string}


def said(node, beside: dict[int, str]) -> list[tuple[str, str]]:
    "(what it is about, the comment) of a function: all that stands on the line of the comment, or `note`"
    a, first, about = node.args, node.body[0].lineno, {}
    named = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    for arg, default in zip(named, _defaults(a)):
        if arg.arg not in ('self', 'cls'): about.setdefault(default or arg.end_lineno, []).append(f'`{arg.arg}`')
    if node.returns: about.setdefault(node.returns.end_lineno, []).append('returns')
    return [(', '.join(about.get(line, ())) or 'note', beside[line])
            for line in range(node.lineno, first) if line in beside]


def _defaults(a) -> list[int | None]:
    "The line on which the default of each argument ends, in the order of `said`"
    front = [*a.posonlyargs, *a.args]
    ends = [None] * (len(front) - len(a.defaults)) + [d.end_lineno for d in a.defaults]
    return [*ends, *(d.end_lineno if d else None for d in a.kw_defaults), None, None]


@cache
def origins(module: str) -> dict[str, str]:
    "Names of the package that a module knows, with where they are from, so that a type is a link"
    found = {}
    for node in trees()[module].body:
        if isinstance(node, ast.ImportFrom) and node.level:
            above = ['evolora', *module.split('.')][:-node.level]
            found |= {a.asname or a.name: '.'.join(filter(None, [*above, node.module, a.name])) for a in node.names}
        if isinstance(node, ast.ClassDef): found[node.name] = f'evolora.{module}.{node.name}'
    return found


class Typed(ast.NodeTransformer):
    "Annotations in which classes of the package have their whole names"
    def __init__(self, module: str): self.known = origins(module)
    def visit_Name(self, node): return ast.Name(self.known.get(node.id, node.id))
    def visit_Constant(self, node): return ast.Name(self.known[node.value]) if node.value in self.known else node


LONG = (ast.GeneratorExp, ast.ListComp, ast.DictComp, ast.Lambda)


def signature(node, module: str, own: bool = False) -> str: # own: a method, without self
    "As it is written, with `...` for a default that is a small program"
    node, types = copy.deepcopy(node), Typed(module)
    a = node.args
    for arg in filter(None, [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]):
        if arg.annotation: arg.annotation = types.visit(arg.annotation)
    brief = lambda d: ast.Constant(...) if d and any(isinstance(n, LONG) for n in ast.walk(d)) else d
    a.defaults, a.kw_defaults = [*map(brief, a.defaults)], [*map(brief, a.kw_defaults)]
    if own and a.args and a.args[0].arg in ('self', 'cls'): a.args = a.args[1:]
    returns = f' -> {ast.unparse(types.visit(node.returns))}' if node.returns else ''
    return f'({ast.unparse(a)}){returns}'


def sentence(node) -> str:
    text = plain(ast.get_docstring(node) or '')
    return text if not text or text.endswith(('.', '…', '!', '?')) else f'{text}.'


def entry(kind: str, name: str, node, module: str, beside, own=False) -> str:
    notes = '\n'.join(f'- {about}: {plain(what)}' for about, what in said(node, beside))
    return f"````{{py:{kind}}} {name}{signature(node, module, own)}\n\n{sentence(node)}\n\n{notes}\n````\n"


def patches(module: str) -> dict[str, list]:
    "Class → the methods that are patched into it further below"
    found = {}
    for node in trees()[module].body:
        if isinstance(node, FUNCTION) and any('patch' in ast.unparse(d) for d in node.decorator_list):
            found.setdefault(ast.unparse(node.args.args[0].annotation).strip("'"), []).append(node)
    return found


def described(module: str, name: str, beside: dict[int, str]) -> str:
    "A public name as a part of its page"
    text, tree, full = sources()[module][1], trees()[module], f'evolora.{module}.{name}'
    node = next((n for n in tree.body if getattr(n, 'name', None) == name), None)
    if isinstance(node, FUNCTION): return entry('function', full, node, module, beside)
    if isinstance(node, ast.ClassDef):
        methods = [n for n in [*node.body, *patches(module).get(name, ())] if isinstance(n, FUNCTION)]
        init = next((n for n in methods if n.name == '__init__'), None)
        fields = [f'- `{ast.unparse(n.target)}: {ast.unparse(n.annotation)}`'
                  + (f': {plain(beside[n.lineno])}' if n.lineno in beside else '')
                  for n in node.body if isinstance(n, ast.AnnAssign) and not n.target.id.startswith('_')]
        about = [sentence(node), ''] + ([f'- {who}: {plain(what)}' for who, what in said(init, beside)] if init else [])
        inner = []
        for m in methods:
            if m.name.startswith('_'): continue
            marks = ' '.join(map(ast.unparse, m.decorator_list))
            if 'property' in marks or 'as_prop' in marks:
                kind = f':type: {ast.unparse(Typed(module).visit(copy.deepcopy(m.returns)))}\n' if m.returns else ''
                inner.append(f'```{{py:property}} {m.name}\n{kind}\n{sentence(m)}\n```\n')
            else: inner.append(entry('method', m.name, m, module, beside, own=True).replace('````', '```'))
        head = signature(init, module, True) if init else ''
        return f"````{{py:class}} {full}{head}\n\n" + '\n'.join([*about, '', *fields, '', *inner]) + '\n````\n'
    shown = next((ast.get_source_segment(text, n) for n in tree.body if isinstance(n, (ast.Assign, ast.AnnAssign))
                  and name in [ast.unparse(x) for t in getattr(n, 'targets', [getattr(n, 'target', None)])
                               for x in getattr(t, 'elts', [t])]), name)
    few = shown.splitlines()
    code = '\n'.join(few[:6] + ['…'] * (len(few) > 6))
    return f'````{{py:data}} {full}\n\n```python\n{code}\n```\n````\n'


def rooms() -> dict[str, list[str]]:
    found = {}
    for module in sources(): found.setdefault(module.rpartition('.')[0], []).append(module)
    return found


def page(room: str, modules: list[str]) -> str:
    parts = [f'# evolora.{room}', 'Every public name of the room, module by module: '
             f'`from evolora.{modules[0]} import …`.']
    for module in modules:
        book, text = sources()[module]
        beside = comments(module)
        parts.append(f"(module-{module})=\n## {module}\n\n{sentence(trees()[module])} The lesson, with "
                     f"its source: [{book.name}](../nbs/{book}); the module: "
                     f"`evolora/{module.replace('.', '/')}.py`.\n")
        parts += [described(module, name, beside) for name in public(module)]
    return '\n\n'.join(parts) + '\n'


def pages() -> dict[str, str]:
    "Path → page of each room"
    return {f'interface/{room}.md': page(room, modules) for room, modules in rooms().items()}
