"Packaging, read from settings.ini so that every fact is written once."
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.sdist import sdist

parser = ConfigParser(delimiters=['='])
parser.read(Path(__file__).with_name('settings.ini'), encoding='utf-8')
settings = parser['DEFAULT']
optional = settings['attention_requirements'].split()
cluster = settings['cluster_requirements'].split()
trackers = settings['trackers_requirements'].split()
site = settings['docs_requirements'].split()


class Sources(sdist):
    "A source distribution with settings.ini, without which this file could not build it"
    def make_distribution(self):
        self.filelist.append('settings.ini')
        super().make_distribution()


setup(
    name=settings['lib_name'], version=settings['version'], description=settings['description'],
    author=settings['author'], author_email=settings['author_email'], license='Apache-2.0', keywords=settings['keywords'],
    long_description=Path(__file__).with_name('README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    # The folders of presets, weights, lab notebooks and studies hold no code, but travel like packages.
    packages=[*find_namespace_packages(include=['evolora', 'evolora.*'], exclude=['*.__pycache__']), 'evolora._lab',
              'evolora._studies'],
    package_dir={'evolora._lab': 'nbs/lab', 'evolora._studies': 'nbs/experiments'}, include_package_data=True,
    package_data={'evolora': ['ecology/presets/*.yaml', 'host/embedded/*', 'host/habits/*', 'tasks/modes.json', 'py.typed', '**/*.pyi'], 'evolora._lab': ['*.ipynb'],
                  'evolora._studies': ['*.yaml']},
    python_requires=f">={settings['min_python']}", install_requires=settings['requirements'].split(),
    extras_require={'attention': optional, 'cluster': cluster, 'docs': site,
                    'trackers': [*trackers, *settings['large_trackers_requirements'].split()],
                    'dev': [*settings['dev_requirements'].split(), *optional, *cluster, *site, *trackers]},
    cmdclass={'sdist': Sources},
    entry_points={'console_scripts': settings['console_scripts'].split()},
)
